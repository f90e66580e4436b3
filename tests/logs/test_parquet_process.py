"""Hostile Parquet ends a process, and never the one that reads the logs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.logs import parquet_process
from sgpu.logs.records import Rejected
from tests.scoring.hostile_parquet import bomb, deep, forged_counts
from tests.scoring.log_folders import ids, items, read, row, told, write


def details(folder: Path) -> list[str]:
    return [item.detail for item in items(read(folder)) if isinstance(item, Rejected)]


def test_a_schema_that_ends_the_process_is_a_fault_of_its_file(tmp_path: Path) -> None:
    deep(tmp_path / "a.parquet", 20_000)
    write(tmp_path / "b.parquet", [row(i) for i in range(3)])
    found = read(tmp_path)
    assert told(found) == [(None, "file_unreadable")] and ids(found) == ["r-0", "r-1", "r-2"]
    assert details(tmp_path) == ["Parquet: 2 times it has ended the process that reads it (signal SIGSEGV)"]


@pytest.mark.parametrize("rows", [2**62, 2**40, 99, 0])
def test_row_counts_that_do_not_add_up_are_a_fault_of_the_file(tmp_path: Path, rows: int) -> None:
    forged_counts(tmp_path / "a.parquet", rows)
    assert told(read(tmp_path)) == [(None, "file_unreadable")]
    assert "and" in details(tmp_path)[0] and "in 2 row groups" in details(tmp_path)[0]


def test_a_column_that_no_format_has_is_not_read_whatever_it_unpacks_to(tmp_path: Path) -> None:
    file = bomb(tmp_path / "a.parquet", 256, 20, "whatever")
    assert file.stat().st_size < 20_000
    assert ids(read(tmp_path)) == [f"r-{i}" for i in range(256)]


def test_a_dictionary_above_the_bound_of_a_row_is_a_fault_of_the_file(tmp_path: Path) -> None:
    bomb(tmp_path / "a.parquet", 256, 20, "text")
    assert told(read(tmp_path)) == [(None, "file_unreadable")]
    assert "a dictionary of 'text' has 20971524 bytes; at most 16777216" in details(tmp_path)[0]


def test_rows_that_unpack_to_more_than_a_line_may_have_are_refused_one_by_one(tmp_path: Path) -> None:
    lines = [row(i, metadata={"note": "x" * size}) for i, size in enumerate([1, 17 * 2**20, 1])]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "a.parquet", use_dictionary=False)
    found = read(tmp_path)
    assert told(found) == [(2, "oversize_text")] and ids(found) == ["r-0", "r-2"]


def test_a_row_of_many_small_values_is_refused(tmp_path: Path) -> None:
    lists = pa.array([[False] * 20_000_000, [True]], pa.list_(pa.bool_()))
    pq.write_table(
        pa.table({"request_id": ["a", "b"], "timestamp": ["x", "y"], "text": lists}), tmp_path / "a.parquet"
    )
    assert told(read(tmp_path)) == [(1, "oversize_text"), (2, "bad_value")]


def test_a_text_that_stands_once_for_many_answers_counts_for_each_of_them(tmp_path: Path) -> None:
    once = pa.DictionaryArray.from_arrays(pa.array([0] * 40 + [1, 2], pa.int32()), ["x" * 2**20, "a", "b"])
    answers = pa.ListArray.from_arrays([0, 40, 42], once)
    pq.write_table(pa.table({"answers": answers}), tmp_path / "a.parquet", compression="zstd")
    assert told(read(tmp_path)) == [(1, "oversize_text"), (2, "unknown_format")]


def test_memory_is_bounded_on_both_sides(tmp_path: Path) -> None:
    bomb(tmp_path / "a.parquet", 60, 15, "text")
    # In a process of its own, since the peak of this one may be above any bound already.
    code = (
        "import sys; from pathlib import Path; from tests.scoring.log_folders import read\n"
        "read(Path(sys.argv[1])); from sgpu.logs.parquet_process import _idle\n"
        "for name in ('self', _idle[0].pid):\n"
        "    text = Path(f'/proc/{name}/status').read_text(); print(text.split('VmHWM:')[1].split()[0])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    own, child = (int(kilobytes) / 1024 for kilobytes in done.stdout.split())
    assert own < 500 and child < 500  # 900 MB of text went through


def test_all_rows_come_whatever_the_size_of_the_batches(tmp_path: Path) -> None:
    sizes = [10, 10, 2**21, 10, 2**22, 3 * 2**20, *[10] * 600, *[2**19] * 200, *[10] * 300]
    lines = [row(i, metadata={"note": "x" * size}) for i, size in enumerate(sizes)]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "a.parquet", compression="zstd")
    assert ids(read(tmp_path)) == [f"r-{i}" for i in range(len(sizes))]


def test_one_process_serves_many_files(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.parquet", [row(0)])
    read(tmp_path)
    (before,) = parquet_process._idle
    read(tmp_path)
    assert parquet_process._idle == [before]


def test_one_that_died_meanwhile_is_replaced_and_blames_no_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [row(0)])
    read(tmp_path)
    for process in parquet_process._idle:
        process.kill()
        process.wait()
    assert ids(read(tmp_path)) == ["r-0"]


def test_a_reader_that_is_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.parquet", [row(0)])
    monkeypatch.setattr(parquet_process, "SILENCE_S", 0.0)
    monkeypatch.setattr(parquet_process, "_idle", [])
    assert details(tmp_path) == ["Parquet: 2 times it has ended the process that reads it (no answer in 0 s)"]


def test_the_process_has_a_bound_on_its_memory() -> None:
    process = parquet_process._started()
    try:
        assert process.stdin is not None
        nothing = {"scheme": "file", "path": "/nothing"}
        file = {"path": "nothing", "size": 1, "mtime_ns": 0}
        request = {"root": nothing, "location": nothing, "file": file, "start": 0, "end": 1, "columns": []}
        parquet_process._ask(process, request)
        parquet_process._received(process, 1)
        assert resource.prlimit(process.pid, resource.RLIMIT_AS)[0] < 8 * 2**30
    finally:
        process.kill()
        process.communicate()
