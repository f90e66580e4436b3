"""The files of a day: which are taken, which are refused, and when two snapshots are the same."""

from __future__ import annotations

import json
import os
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgpu.errors import DataError
from sgpu.logs.snapshot import LogFile, Snapshot, splits_of, take_snapshot
from sgpu.storage.location import Location
from tests.object_store import ObjectStore
from tests.scoring.log_folders import DAY, read, row, snapshot_of, write


def paths(folder: Path | str, day: date = DAY) -> list[str]:
    return [file.path for file in snapshot_of(folder, day).files]


def refused(folder: Path) -> dict[str, str | None]:
    return {file.path: file.refused for file in snapshot_of(folder).files}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def test_the_folder_of_the_day_is_taken_at_any_depth_and_no_other(logs: Path) -> None:
    for name in (
        "dt=2026-11-20/a.jsonl",
        "dt=2026-11-20/hour=03/b.jsonl.gz",
        "bot/date=2026-11-20/c.parquet",
        "dt=2026-11-19/d.jsonl",
        "bot/date=2026-11-21/e.jsonl",
    ):
        write(logs / name, [row(1)])
    assert paths(logs) == [
        "bot/date=2026-11-20/c.parquet",
        "dt=2026-11-20/a.jsonl",
        "dt=2026-11-20/hour=03/b.jsonl.gz",
    ]
    snapshot = snapshot_of(logs)
    assert snapshot.by_folder and all(file.dated for file in snapshot.files)


def test_without_day_folders_every_file_is_taken(logs: Path) -> None:
    write(logs / "b.jsonl", [row(1)])
    write(logs / "bot" / "a.jsonl", [row(1)])
    snapshot = snapshot_of(logs)
    assert [file.path for file in snapshot.files] == ["b.jsonl", "bot/a.jsonl"]
    assert not snapshot.by_folder and not any(file.dated for file in snapshot.files)


def test_a_day_without_a_folder_has_no_files_where_other_days_have_one(logs: Path) -> None:
    write(logs / "dt=2026-11-19" / "a.jsonl", [row(1)])
    snapshot = snapshot_of(logs)
    assert snapshot.by_folder and snapshot.files == ()


def test_a_file_beside_day_folders_is_taken_and_marked(logs: Path) -> None:
    write(logs / "dt=2026-11-20" / "a.jsonl", [row(1)])
    write(logs / "stray.jsonl", [row(2)])
    assert {file.path: file.dated for file in snapshot_of(logs).files} == {
        "dt=2026-11-20/a.jsonl": True,
        "stray.jsonl": False,
    }


def test_the_root_may_be_the_folder_of_one_day(logs: Path) -> None:
    write(logs / "dt=2026-11-20" / "a.jsonl", [row(1)])
    assert paths(logs / "dt=2026-11-20") == ["a.jsonl"]
    assert snapshot_of(logs / "dt=2026-11-20").by_folder
    assert paths(logs / "dt=2026-11-20", date(2026, 11, 19)) == []


def test_the_root_may_be_one_file(logs: Path) -> None:
    path = write(logs / "a.jsonl", [row(1)])
    snapshot = snapshot_of(path)
    assert [file.path for file in snapshot.files] == ["a.jsonl"]
    assert snapshot.files[0].size == path.stat().st_size and not snapshot.by_folder


def test_hidden_names_and_those_of_tables_are_left_out(logs: Path) -> None:
    for name in ("a.jsonl", ".a.jsonl.swp", "_SUCCESS", "_delta_log/0.json", ".tmp/b.jsonl"):
        write(logs / name, b"")
    assert paths(logs) == ["a.jsonl"]


def test_size_and_time_are_those_of_the_file(logs: Path) -> None:
    path = write(logs / "a.jsonl", [row(1)])
    (file,) = snapshot_of(logs).files
    assert (file.size, file.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)
    assert snapshot_of(logs).n_bytes == file.size


def test_the_sha256_tells_a_change_and_nothing_else(logs: Path) -> None:
    path = write(logs / "a.jsonl", [row(1)])
    before = snapshot_of(logs)
    assert snapshot_of(logs).sha256 == before.sha256
    os.utime(path, ns=(0, before.files[0].mtime_ns + 1))
    assert snapshot_of(logs).sha256 != before.sha256
    os.utime(path, ns=(0, before.files[0].mtime_ns))
    assert snapshot_of(logs).sha256 == before.sha256
    write(logs / "b.jsonl", [row(2)])
    assert snapshot_of(logs).sha256 != before.sha256


def test_links_that_leave_the_logs_are_refused(logs: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.jsonl", [row(1)])
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere" / "b.jsonl", [row(2)])
    (logs / "a.jsonl").symlink_to(secret)
    (logs / "up.jsonl").symlink_to("../secret.jsonl")
    (logs / "folder").symlink_to(tmp_path / "elsewhere")
    (logs / "nothing.jsonl").symlink_to("gone.jsonl")
    (logs / "ring.jsonl").symlink_to("ring.jsonl")
    out, nowhere = "a link that leads out of the logs", "a link that leads nowhere"
    found = refused(logs)
    assert {name: found[name] for name in ("a.jsonl", "up.jsonl", "folder")} == {
        "a.jsonl": out, "up.jsonl": out, "folder": out,
    }  # fmt: skip
    assert found["nothing.jsonl"] == nowhere and found["ring.jsonl"] in (nowhere, out)


def test_the_folder_of_the_day_may_not_be_a_link_to_elsewhere(logs: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "a.jsonl", [row(1)])
    (logs / "dt=2026-11-20").symlink_to(tmp_path / "elsewhere")
    assert refused(logs) == {"dt=2026-11-20": "a link that leads out of the logs"}


def test_links_within_the_logs_are_read_once(logs: Path) -> None:
    write(logs / "raw" / "a.jsonl", [row(1)])
    (logs / "latest").symlink_to("raw")
    (logs / "b.jsonl").symlink_to("raw/a.jsonl")
    (logs / "raw" / "up").symlink_to("..")
    assert refused(logs) == {"b.jsonl": None, "raw/a.jsonl": None}


def test_pipes_are_refused_without_being_opened(logs: Path) -> None:
    os.mkfifo(logs / "a.jsonl")
    assert refused(logs) == {"a.jsonl": "not a plain file"}


def test_a_name_that_is_not_utf8_is_refused_and_can_be_stored(logs: Path) -> None:
    Path(os.fsdecode(os.fsencode(logs) + b"/\xff.jsonl")).write_bytes(b"{}")
    assert refused(logs) == {"\\xff.jsonl": "the name is not UTF-8"}


def test_no_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone: no such file or folder"):
        snapshot_of(tmp_path / "gone")


def test_an_empty_folder_is_a_day_without_files(logs: Path) -> None:
    assert snapshot_of(logs).files == ()


def test_object_storage_gives_the_same_files_with_their_tags(object_store: ObjectStore) -> None:
    place = Location.of(object_store.uri("logs"))
    for name in ("dt=2026-11-20/a.jsonl", "dt=2026-11-19/b.jsonl", "_tmp/c.jsonl"):
        (place / name).write_bytes(b"{}\n")
    snapshot = take_snapshot(place, DAY)
    (file,) = snapshot.files
    assert (file.path, file.size, file.dated, snapshot.by_folder) == ("dt=2026-11-20/a.jsonl", 3, True, True)
    assert file.etag
    (place / "dt=2026-11-20/a.jsonl").write_bytes(b"{ }")
    assert take_snapshot(place, DAY).files[0].etag != file.etag
    alone = take_snapshot(place / "dt=2026-11-20" / "a.jsonl", DAY)
    assert [one.path for one in alone.files] == ["a.jsonl"] and alone.is_file


def test_an_empty_prefix_is_an_error_and_a_missing_bucket_too(object_store: ObjectStore) -> None:
    with pytest.raises(DataError, match="nothing has this prefix"):
        take_snapshot(Location.of(object_store.uri("nothing")), DAY)
    with pytest.raises(DataError, match="no-such-bucket-here"):
        take_snapshot(Location.of("s3://no-such-bucket-here/logs"), DAY)


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
