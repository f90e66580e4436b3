"""Which quarantined rows the page of a day shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sgpu.scoring.summary import collect_examples
from sgpu.storage.location import Location


def written(folder: Path, name: str, rows: list[tuple[str, str, int | None]]) -> Location:
    table = pa.table(
        {
            "reason": [reason for reason, _, _ in rows],
            "file": [file for _, file, _ in rows],
            "line": pa.array([line for _, _, line in rows], pa.int64()),
            "detail": [f"{file}:{line}" for _, file, line in rows],
        }
    )
    pq.write_table(table, folder / name, row_group_size=2)
    return Location.of(folder / name)


def test_they_are_the_first_of_each_reason_by_file_and_line_whatever_file_they_stand_in(
    tmp_path: Path,
) -> None:
    first = written(tmp_path, "a.parquet", [("empty", "b", 2), ("empty", "b", 10), ("refusal", "b", 1)])
    second = written(tmp_path, "b.parquet", [("empty", "b", 3), ("empty", "a", 9), ("empty", "c", 1)])
    found = collect_examples([first, second], shown=3)
    assert [(row["file"], row["line"]) for row in found["empty"]] == [("a", 9), ("b", 2), ("b", 3)]
    assert found["refusal"] == [{"file": "b", "line": 1, "detail": "b:1"}]
    assert collect_examples([second, first], shown=3) == found


def test_a_fault_of_a_whole_file_stands_before_its_lines(tmp_path: Path) -> None:
    file = written(tmp_path, "a.parquet", [("file_truncated", "x", None), ("file_truncated", "x", 4)])
    assert [row["line"] for row in collect_examples([file])["file_truncated"]] == [None, 4]
