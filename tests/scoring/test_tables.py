"""What the score table holds, whichever version wrote it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sgpu.scoring.tables import SCORES, read_columns
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import write_rows


def test_columns_that_an_older_file_lacks_are_null(tmp_path: Path) -> None:
    older = pa.table({"request_id": ["x"], "content_sha256": ["c x"]})
    write_rows(tmp_path / "a.parquet", older)
    rows = read_columns(Location.of(tmp_path / "a.parquet"), SCORES.schema)
    assert rows.schema.equals(SCORES.schema)
    assert rows.select(["request_id", "content_sha256"]).equals(
        older.cast(rows.select(older.column_names).schema)
    )
    assert rows["members"].to_pylist() == rows["shadow_std"].to_pylist() == [None]
