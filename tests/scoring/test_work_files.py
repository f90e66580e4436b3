"""Markers of a run in work are whole or not there, on this machine and in object storage."""

from __future__ import annotations

from pathlib import Path

from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location
from tests.object_store import ObjectStore


def test_a_marker_is_read_back_from_object_storage(object_store: ObjectStore) -> None:
    file = Location.of(object_store.uri("work/done.json"))
    write_json(file, {"rows": 300})
    assert read_json(file) == {"rows": 300}


def test_a_marker_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_json(Location.of(tmp_path / "none.json")) is None
