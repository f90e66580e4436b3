"""Files that are cut, changed, replaced, removed, or still being written while they are read."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from sgpu.errors import StageError
from sgpu.logs import parquet_process
from sgpu.logs.pinned_file import PinnedFile
from sgpu.logs.reading import read_split
from sgpu.logs.records import Rejected
from sgpu.logs.snapshot import splits_of, take_snapshot
from sgpu.storage.location import Location
from tests.object_store import ObjectStore
from tests.scoring.log_folders import DAY, ids, json_lines, read, row, snapshot_of, told, write

ROWS = [row(i) for i in range(3_000)]


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_rows_before_the_cut_of_a_compressed_file_are_kept(tmp_path: Path, ending: str, share: float) -> None:
    path = write(tmp_path / f"a{ending}", ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    found = read(path)
    assert told(found) == [(None, "file_truncated")]
    kept = ids(found)
    assert kept == [f"r-{i}" for i in range(len(kept))]
    # Both compressors work in blocks, of which the cut spoils one.
    assert len(kept) > (share - 0.35) * len(ROWS)


@pytest.mark.parametrize(
    ("ending", "decompress"),
    [
        (".jsonl.zst", zstandard.ZstdDecompressor().decompressobj().decompress),
        (".jsonl.gz", zlib.decompressobj(wbits=31).decompress),
    ],
)
def test_every_row_that_the_library_itself_can_decode_is_kept(
    tmp_path: Path, ending: str, decompress: Callable[[bytes], bytes]
) -> None:
    path = write(tmp_path / f"a{ending}", ROWS)
    cut = path.read_bytes()[: int(path.stat().st_size * 0.7)]
    path.write_bytes(cut)
    assert len(ids(read(path))) == decompress(cut).count(b"\n") > 100


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_a_compressed_file_in_several_members_is_read_whole(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", ROWS[:5])
    path.write_bytes(path.read_bytes() + write(tmp_path / f"b{ending}", ROWS[5:10]).read_bytes())
    assert ids(read(path)) == [f"r-{i}" for i in range(10)]


def test_a_file_that_is_not_what_its_name_says_is_one_fault(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "a.jsonl.zst", "a.parquet"):
        (tmp_path / name).write_bytes(b"these are plain words")
        assert told(read(tmp_path / name)) == [(None, "file_unreadable")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"import this\n", "not_a_log"),
        (b"# Logs [of] {the} day\n", "not_a_log"),
        (b"", "not_a_log"),
        (json_lines(ROWS[:1]), "unknown_format"),
        (json.dumps(ROWS[:2], indent=2).encode(), "unknown_format"),
        (gzip.compress(b"{}", mtime=0), "unknown_format"),
    ],
)
def test_a_file_of_another_name_is_a_fault_only_if_it_may_hold_logs(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "part-0").write_bytes(content)
    assert told(read(tmp_path / "part-0")) == [(None, reason)]


def test_a_checksum_that_is_wrong_is_told_after_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", ROWS[:50])
    whole = bytearray(path.read_bytes())
    whole[-8] ^= 1
    path.write_bytes(whole)
    found = read(path)
    assert len(ids(found)) == 50 and told(found) == [(None, "file_unreadable")]


def test_a_parquet_file_without_its_end_is_truncated(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ROWS[:50])
    path.write_bytes(path.read_bytes()[:-20])
    assert told(read(path)) == [(None, "file_truncated")]


def test_a_broken_row_group_costs_only_its_own_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ROWS[:21])  # three groups of seven
    group = pq.ParquetFile(path).metadata.row_group(1)
    start = min(group.column(i).data_page_offset for i in range(group.num_columns))
    broken = bytearray(path.read_bytes())
    broken[start - 20 : start + 200] = b"\xff" * 220
    path.write_bytes(broken)
    for split_bytes in (2**30, 50):
        found = read(path, split_bytes=split_bytes)
        assert ids(found) == [f"r-{i}" for i in (*range(7), *range(14, 21))]
        assert told(found) == [(8, "file_unreadable")]
        fault = next(item for _, item in found if isinstance(item, Rejected))
        assert "7 rows of row group 1" in fault.detail
        assert [line for line, _ in found][-1] == 21


def test_a_text_that_is_not_utf8_in_parquet_costs_its_row(tmp_path: Path) -> None:
    rows = [row(i) for i in range(4)]
    models = pa.array([b"m", b"m", b"\xff\xfe", b"m"]).cast(pa.binary()).view(pa.string())
    table = pa.Table.from_pylist(rows)
    table = table.set_column(table.schema.get_field_index("model"), "model", models)
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert ids(found) == ["r-0", "r-1", "r-3"]
    assert told(found) == [(3, "bad_encoding")]


def test_two_columns_of_one_name_are_a_fault(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["model", "model"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert told(read(tmp_path / "a.parquet")) == [(None, "file_unreadable")]


def test_a_file_that_was_removed_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:3])
    pinned = snapshot_of(tmp_path)
    path.unlink()
    assert told(read(tmp_path, pinned)) == [(None, "file_missing")]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs another user: root may read everything")
def test_a_file_that_may_not_be_read_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS[:3]).chmod(0)
    assert told(read(tmp_path)) == [(None, "file_unreadable")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_shrank_was_rewritten_or_replaced_is_changed(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS[:9])
    pinned = snapshot_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert told(read(tmp_path, pinned)) == [(None, "file_changed")]
    path.write_bytes(whole)  # as long as before, but later
    os.utime(path, ns=(0, pinned.files[0].mtime_ns + 1_000_000_000))
    assert told(read(tmp_path, pinned)) == [(None, "file_changed")]
    (tmp_path / "other").write_bytes(whole * 2)
    (tmp_path / "other").replace(path)
    assert told(read(tmp_path, pinned)) == [(None, "file_changed")]


def test_each_split_of_a_changed_file_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:9])
    pinned = snapshot_of(tmp_path)
    path.write_bytes(b"")
    found = read(tmp_path, pinned, split_bytes=300)
    assert told(found) == [(None, "file_changed")] * len(splits_of(pinned, 300))


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(text)


def test_of_a_file_that_has_grown_only_the_pinned_bytes_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:5])
    pinned = snapshot_of(tmp_path)
    append(path, json_lines(ROWS[5:9]))
    for split_bytes in (2**30, 100):
        found = read(tmp_path, pinned, split_bytes)
        assert ids(found) == [f"r-{i}" for i in range(5)] and told(found) == []
    assert len(ids(read(tmp_path))) == 9


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_a_line_that_was_being_written_is_left_for_the_next_run(tmp_path: Path, cut: int) -> None:
    text = json_lines([row(1), row(2, route="é")])
    path = write(tmp_path / "a.jsonl", text[:-cut])
    pinned = snapshot_of(tmp_path)
    before = told(read(tmp_path, pinned))
    append(path, text[-cut:] + json_lines([row(3)]))
    found = read(tmp_path, pinned)
    if cut == 1:  # only the line feed was not there yet
        assert ids(found) == ["r-1", "r-2"] and told(found) == before == []
    else:
        assert before == [(2, "not_json")]  # nothing says that it will ever be finished
        assert ids(found) == ["r-1"] and told(found) == [(2, "unfinished_line")]
    assert ids(read(tmp_path)) == ["r-1", "r-2", "r-3"]


def test_a_compressed_file_that_has_grown_ends_in_an_unfinished_line(tmp_path: Path) -> None:
    whole = gzip.compress(json_lines(ROWS), mtime=0)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    pinned = snapshot_of(tmp_path)
    append(path, whole[len(whole) // 2 :])
    found = read(tmp_path, pinned)
    assert told(found) == [(None, "unfinished_line")]
    assert 0 < len(ids(found)) < len(ROWS)
    assert len(ids(read(tmp_path))) == len(ROWS)


def test_a_file_that_changes_while_it_is_read_is_told_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    pinned = snapshot_of(tmp_path)
    (split,) = splits_of(pinned, 2**30)
    reading = read_split(Location.of(tmp_path), pinned, split)
    first = next(reading)
    os.truncate(path, 10)
    *_, last, _ = [first, *reading]
    assert isinstance(last, tuple) and isinstance(last[1], Rejected)
    assert last[0] is None and last[1].reason == "file_changed"


def test_a_link_that_is_put_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = write(logs / "a.jsonl", ROWS[:3])
    pinned = snapshot_of(logs)
    path.replace(tmp_path / "moved.jsonl")
    path.symlink_to(tmp_path / "moved.jsonl")
    assert told(read(logs, pinned)) == [(None, "unsafe_path")]


def test_a_pipe_that_is_put_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:3])
    pinned = snapshot_of(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert told(read(tmp_path, pinned)) == [(None, "unsafe_path")]


def test_a_refused_file_is_one_row_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/etc/passwd")
    ((line, fault),) = read(tmp_path)
    assert line is None and isinstance(fault, Rejected)
    assert (fault.reason, fault.detail) == ("unsafe_path", "a link that leads out of the logs")


def test_a_file_that_was_named_may_be_a_link_to_anywhere(tmp_path: Path) -> None:
    target = write(tmp_path / "elsewhere" / "b.jsonl", ROWS[:2])
    (tmp_path / "a.jsonl").symlink_to(target)
    assert ids(read(tmp_path / "a.jsonl")) == ["r-0", "r-1"]


NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]


@pytest.fixture
def stored(tmp_path: Path, object_store: ObjectStore) -> Location:
    """The same rows as every kind of file, in a bucket."""
    place = Location.of(object_store.uri("logs"))
    for name in NAMES:
        upload(place / name, write(tmp_path / name, ROWS[:50]).read_bytes())
    return place


def upload(place: Location, payload: bytes) -> None:
    # By its default pyarrow compresses what has a compressed file's name.
    with place.filesystem.open_output_stream(place.path, compression=None) as stream:
        stream.write(payload)


def test_object_storage_is_read_as_a_folder_is(stored: Location) -> None:
    for split_bytes in (2**30, 500):
        found = read(str(stored), take_snapshot(stored, DAY), split_bytes)
        assert told(found) == [] and ids(found) == [f"r-{i}" for i in range(50)] * len(NAMES)


def test_an_object_that_was_replaced_or_deleted_is_told(stored: Location) -> None:
    pinned = take_snapshot(stored, DAY)
    for name in NAMES:
        upload(stored / name, b"x" * (stored / name).info().size)
    assert told(read(str(stored), pinned)) == [(None, "file_changed")] * len(NAMES)
    for name in NAMES:
        (stored / name).delete()
    assert told(read(str(stored), pinned)) == [(None, "file_missing")] * len(NAMES)


def test_storage_that_fails_on_opening_ends_the_run_and_blames_no_file(
    stored: Location, object_store: ObjectStore
) -> None:
    pinned = take_snapshot(stored / "a.jsonl", DAY)
    object_store.fail(500, 1_000)
    with pytest.raises(StageError, match="the storage fails again and again"):
        read(str(stored / "a.jsonl"), pinned)


@pytest.mark.parametrize("name", NAMES)
def test_storage_that_fails_while_a_file_is_read_ends_the_run_and_blames_no_file(
    stored: Location, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pinned = take_snapshot(stored / name, DAY)
    opened = PinnedFile._opened

    class Failing:
        def __init__(self, stream: Any) -> None:
            self.stream, self.left = stream, 500 if name.endswith("parquet") else 0

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.stream, attribute)

        def read(self, size: int) -> bytes:
            self.left -= size
            if self.left < 0:
                raise OSError("When reading: AWS Error INTERNAL_FAILURE during GetObject operation")
            return bytes(self.stream.read(size))

    monkeypatch.setattr(PinnedFile, "_opened", lambda self, root: Failing(opened(self, root)))
    # Parquet is read in a process of its own, whose files do not fail: here its side runs in this one.
    monkeypatch.setattr(parquet_process, "_answers", parquet_process._served)
    with pytest.raises(StageError, match="the storage fails again and again"):
        read(str(stored / name), pinned)


def test_a_few_failures_of_storage_are_ridden_out(stored: Location, object_store: ObjectStore) -> None:
    pinned = take_snapshot(stored, DAY)
    object_store.fail(500, 2)
    assert len(ids(read(str(stored), pinned))) == 50 * len(NAMES)


def test_the_snapshot_of_a_copied_folder_reads_the_same(tmp_path: Path) -> None:
    write(tmp_path / "one" / "dt=2026-11-20" / "a.jsonl", ROWS[:4])
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copy2)
    one, two = snapshot_of(tmp_path / "one"), snapshot_of(tmp_path / "two")
    assert one.sha256 == two.sha256
    assert read(tmp_path / "two", one) == read(tmp_path / "one", one)
