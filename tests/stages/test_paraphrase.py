"""The wordings of a model: different texts only, filled up with fixed ones where they are too few."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sgpu.stages.paraphrase import wordings
from sgpu.storage.store import Partition, Store
from sgpu.storage.tables import PARAPHRASES


def test_texts_that_are_blank_or_repeated_are_no_further_wordings(tmp_path: Path) -> None:
    rows = [
        {
            "question_id": "0",
            "status": "ok",
            "answers": ["It is Lima.", "it is lima.", " ", None, "Lima it is."],
        },
        {"question_id": "1", "status": "failed"},
    ]
    table = pa.Table.from_pylist(rows, schema=PARAPHRASES.schema)
    published = Store(tmp_path).write(PARAPHRASES, Partition.of(model="m", dataset="d"), table, "f" * 12, {})
    statements = [("Capital of Peru?", "Lima"), ("Capital of Italy?", "Rome")]
    assert wordings(published, statements) == {
        statements[0]: ["It is Lima.", "Lima it is."],
        statements[1]: [],
    }
