"""Bounds on what one file may take: the rest is told and not read, and the other files are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.logs.budget import FileBounds, FileBudget, rejected_row_limit
from sgpu.logs.pinned_file import FileFault
from sgpu.logs.records import Rejected
from sgpu.logs.snapshot import Split
from tests.scoring.log_folders import ids, items, json_lines, read, row, told, write

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
WHOLE = Split(0, 0, 0, 1000)


def fault(folder: Path, **bounds: float) -> str:
    """What is said of the one file that is over a bound."""
    [over] = [
        item
        for item in items(read(folder, bounds=FileBounds(**bounds)))
        if isinstance(item, Rejected) and item.reason == "over_budget"
    ]
    return over.detail


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_above_the_bound_are_not_read_and_the_file_is_told_once(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", [row(i) for i in range(60)])
    found = read(tmp_path, bounds=FileBounds(rows=20))
    assert len(ids(found)) == 20 and told(found) == [(None, "over_budget")]
    unread, _, _, size, *rest = fault(tmp_path, rows=20).split()
    assert 0 < int(unread) <= int(size) == path.stat().st_size
    assert " ".join(rest) == "bytes were not read: it has more than 20 rows"


@pytest.mark.parametrize("ending", ENDINGS)
def test_bytes_are_bounded(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"a{ending}", [row(i) for i in range(3000)])
    assert "it unpacks to more than" in fault(tmp_path, unpacked_gb=1e-6)


def test_a_line_without_end_is_bounded_too(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as stream:
        for _ in range(100):
            stream.write(bytes(2**20))
    assert "it unpacks to more than" in fault(tmp_path, unpacked_gb=0.05)


def test_a_billion_rows_of_a_column_that_no_format_has_are_one_fault(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 10**6, pa.int8()), pa.array([7], pa.int8()))
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("x", pa.int8())])) as writer:
        for _ in range(20):
            writer.write_table(pa.table({"x": column.cast(pa.int8())}))
    assert told(read(tmp_path)) == [(None, "unknown_format")]


def test_a_large_file_may_take_more_and_a_part_its_share() -> None:
    part = Split(0, 0, 0, 2**30)
    for bounds, size, rows in ((FileBounds(rows=10), 2**30, 10), (FileBounds(rows=10), 10 * 2**30, 10)):
        left = FileBudget(bounds, size, part)
        for _ in range(rows):
            left.row()
        with pytest.raises(FileFault):
            left.row()


def test_parts_of_a_file_share_the_rejected_rows_that_stand_by_themselves() -> None:
    assert rejected_row_limit(1000, WHOLE) == 10_000
    assert rejected_row_limit(1000, Split(0, 0, 0, 500)) == 5_000
    assert rejected_row_limit(10**9, Split(0, 0, 0, 1)) == 100


def test_good_rows_are_within_the_bounds_that_all_have(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", json_lines([row(i) for i in range(300)]))
    assert len(ids(read(tmp_path, split_bytes=1000))) == 300
