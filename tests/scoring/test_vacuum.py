"""What dead runs have left is removed, and nothing else."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

import pytest

from sgpu.errors import IntegrityError, UsageError
from sgpu.scoring.tables import Base
from sgpu.scoring.vacuum import refuse_links, vacuum_table
from sgpu.storage.location import Location
from tests.scoring.test_publish import Place

OLD = time.time() - 200 * 3600


def aged(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (OLD, OLD))
    return path


def test_what_dead_runs_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    place = Place(Location.of(tmp_path))
    place.run("A", Base(), ["x"])
    dead = [
        aged(tmp_path / "scores" / "date=2026-11-20" / "dead" / "bucket-0000-of-0001-aa.parquet"),
        aged(tmp_path / "scores" / "date=2026-11-20" / "dead" / ".bucket.partial"),
        aged(tmp_path / "work" / "deadbeef" / "ingest" / "unit-00000.json"),
        aged(tmp_path / "days" / "2026-11-20" / ".summary.json.0a1b"),
        aged(tmp_path / ".metrics.prom.0a1b"),
        aged(tmp_path / "work" / "models" / ".abc.0a1b" / "bundle.json"),
    ]
    kept = [
        aged(tmp_path / "days" / "2026-11-20" / "summary.json"),
        aged(tmp_path / "work" / "models" / "abc" / "bundle.json"),
        aged(tmp_path / "work" / "locks" / "2026-11-20" / ".lock"),
        aged(tmp_path / "work" / "alive" / "plan.json"),
        tmp_path / "days" / "2026-11-20" / ".metrics.prom.2c3d",
        tmp_path / "work" / "alive" / "score.json",
        tmp_path / "scores" / "date=2026-11-20" / "alive" / "bucket-0000-of-0001-bb.parquet",
    ]
    for file in kept[4:]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"y")
    found = vacuum_table(tmp_path)
    assert (found.files, found.folders) == (5, 1)
    assert [file.exists() for file in (*dead, *kept)] == [False] * len(dead) + [True] * len(kept)
    assert place.ids() == ["x"]


def test_without_tables_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert vacuum_table(str(tmp_path)).files == 0


def test_files_of_a_run_at_work_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="below 24 hours"):
        vacuum_table(tmp_path.as_posix(), older_than_hours=1)


def test_a_day_that_is_committed_can_be_read_after_it(tmp_path: Path) -> None:
    place = Place(Location.of(tmp_path))
    place.run("A", Base(), ["x"], date(2026, 11, 20))
    for file in tmp_path.rglob("*.parquet"):
        os.utime(file, (OLD, OLD))
    vacuum_table(tmp_path)
    assert place.ids() == ["x"]


@pytest.mark.parametrize("name", ["link", "date=2026-11-20/link"])
@pytest.mark.parametrize("target", ["folder", "file", "nothing"])
def test_a_link_to_anything_is_refused(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    link = tmp_path / "table" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / target)
    with pytest.raises(IntegrityError, match=r"link' is a link"):
        refuse_links(Location.of(tmp_path / "table"))


def test_files_and_folders_are_fine(tmp_path: Path) -> None:
    (tmp_path / "date=2026-11-20").mkdir()
    (tmp_path / "date=2026-11-20" / "rows.parquet").touch()
    refuse_links(Location.of(tmp_path))


def test_object_storage_is_not_walked() -> None:
    refuse_links(Location.of("s3://bucket/table"))
