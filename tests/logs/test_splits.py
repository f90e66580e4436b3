"""Splits: every byte of a file is in exactly one, and reading by splits is reading once."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu.logs.snapshot import LogFile, Snapshot
from sgpu.logs.splits import splits_of
from tests.scoring.log_folders import read, row, write


def one_file(path: str, size: int, refused: str | None = None) -> Snapshot:
    return Snapshot((LogFile(path, size, 0, refused=refused),), False, "2026-11-20")


@given(st.integers(0, 500), st.integers(1, 600))
def test_ranges_of_a_plain_file_meet_and_cover_it(size: int, split_bytes: int) -> None:
    found = splits_of(one_file("a.jsonl", size), split_bytes)
    assert [split.number for split in found] == list(range(len(found)))
    assert found[0].start == 0 and found[-1].end == size
    assert all(one.end == two.start for one, two in pairwise(found))
    assert all(split.end - split.start <= split_bytes for split in found)


@pytest.mark.parametrize("path", ["a.jsonl.gz", "a.ndjson.zst", "a.csv"])
def test_a_file_that_cannot_be_entered_in_the_middle_is_one_split(path: str) -> None:
    (found,) = splits_of(one_file(path, 1000), 10)
    assert (found.start, found.end) == (0, 1000)


def test_a_refused_file_is_one_split() -> None:
    assert len(splits_of(one_file("a.jsonl", 1000, refused="a link"), 10)) == 1


def test_splits_are_numbered_through_the_files() -> None:
    files = (LogFile("a.jsonl", 10, 0), LogFile("b.jsonl", 0, 0), LogFile("c.jsonl", 25, 0))
    found = splits_of(Snapshot(files, True, "2026-11-20"), 10)
    assert [(one.number, one.file, one.start, one.end) for one in found] == [
        (0, 0, 0, 10), (1, 1, 0, 0), (2, 2, 0, 10), (3, 2, 10, 20), (4, 2, 20, 25),
    ]  # fmt: skip


LINES = st.lists(
    st.sampled_from(
        [
            json.dumps(row(1)).encode(),
            json.dumps(row(2, model="é" * 40), ensure_ascii=False).encode(),
            b"",
            b"\r",
            b"{",
            b"\xff\xfe",
            b"[1]",
            b'{"a": "\\u2028"}',
            "\u2028".encode(),
        ]
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(LINES, st.integers(1, 700), st.booleans(), st.booleans())
def test_splits_of_any_size_give_the_items_and_lines_of_one_read(
    tmp_path: Path, lines: list[bytes], split_bytes: int, ended: bool, marked: bool
) -> None:
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    path = write(tmp_path / "a.jsonl", (b"\xef\xbb\xbf" if marked else b"") + text)
    assert read(path, split_bytes=split_bytes) == read(path)


@pytest.mark.parametrize("split_bytes", [1, 7, 100, 700, 5_000])
def test_row_groups_of_parquet_are_read_once_each(tmp_path: Path, split_bytes: int) -> None:
    rows: list[dict[str, Any]] = [row(i) for i in range(40)]
    path = write(tmp_path / "a.parquet", rows)
    found = read(path, split_bytes=split_bytes)
    assert found == read(path)
    assert [line for line, _ in found] == list(range(1, 41))
