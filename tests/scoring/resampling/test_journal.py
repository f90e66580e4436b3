from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sgpu.scoring.resampling.sampling import Journal, key_of
from sgpu.storage.location import Location

KEY = key_of({"id": "r-1"})
FOUND = {"samples": [{"text": "Lima\u202e \N{EARTH GLOBE AMERICAS}", "finish_reason": "stop"}], "tokens": 7}


def journal(folder: Path, run: str = "a") -> Journal:
    return Journal(Location.of(folder), run)


def file_of(folder: Path) -> Path:
    (file,) = (path for path in folder.rglob("*.json"))
    return file


def test_what_was_written_is_read_by_this_run_and_the_next(tmp_path: Path) -> None:
    journal(tmp_path).write(KEY, FOUND)
    for run in "ab":
        found = journal(tmp_path, run).read(KEY)
        assert found is not None
        assert {name: found[name] for name in FOUND} == FOUND


def test_a_failure_counts_for_its_own_run_only(tmp_path: Path) -> None:
    journal(tmp_path, "a").write(KEY, {"failed": "endpoint_unavailable", "detail": "status 503"})
    assert journal(tmp_path, "a").read(KEY) is not None
    assert journal(tmp_path, "b").read(KEY) is None


def test_nothing_is_found_under_another_key(tmp_path: Path) -> None:
    journal(tmp_path).write(KEY, FOUND)
    assert journal(tmp_path).read(key_of({"id": "r-2"})) is None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"body": {}, "sha256": "0"}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_file_counts_as_none(damage: bytes, tmp_path: Path) -> None:
    journal(tmp_path).write(KEY, FOUND)
    file_of(tmp_path).write_bytes(damage)
    assert journal(tmp_path).read(KEY) is None


def test_an_answer_that_was_changed_on_disk_is_not_used(tmp_path: Path) -> None:
    journal(tmp_path).write(KEY, FOUND)
    file = file_of(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"Lima", b"Cali"))
    assert journal(tmp_path).read(KEY) is None


def test_a_file_under_the_name_of_another_request_is_not_used(tmp_path: Path) -> None:
    journal(tmp_path).write(KEY, FOUND)
    other = key_of({"id": "r-2"})
    moved = tmp_path / other[:2] / f"{other}.json"
    moved.parent.mkdir(exist_ok=True)
    file_of(tmp_path).rename(moved)
    assert journal(tmp_path).read(other) is None


def test_only_the_owner_may_read_the_answers(tmp_path: Path) -> None:
    journal(tmp_path / "kept")
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700


def test_the_key_depends_on_content_and_not_on_order() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 1, "b": 3})
