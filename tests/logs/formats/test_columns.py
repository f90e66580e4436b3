"""Rows cut down to the columns that Parquet files are read with become the same items."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgpu.logs.formats import FormatReader
from sgpu.logs.formats.columns import COLUMNS

FIXTURES = sorted((Path(__file__).parents[2] / "scoring" / "fixtures").rglob("*.jsonl"))


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_no_format_needs_a_column_that_is_not_read(file: Path) -> None:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            cut = {key: value for key, value in record.items() if key in COLUMNS}
            assert list(FormatReader().items(cut)) == list(FormatReader().items(record))
