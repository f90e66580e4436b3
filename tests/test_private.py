"""What of a run other users of the machine may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu.errors import UsageError
from sgpu.scoring.day import score_days
from sgpu.storage.location import Location, only_ours
from tests.scoring.nights.nights import SCORER, model_folder, night, row, settings, write


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """That of most machines; what a test sets does not stay."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    model_folder(tmp_path / "model")
    write(tmp_path / "logs", "a.jsonl", [row("r", ["yes", "yes", "no", "yes"])])
    return tmp_path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_work_is_private_and_tables_follow_the_umask(logs: Path) -> None:
    (logs / "out" / "work").mkdir(parents=True)  # of a version that did not look
    night(logs)
    assert mode(logs / "out" / "work") == 0o700
    assert mode(logs / "out" / "scores") == 0o755


def test_a_night_can_be_private_as_a_whole(logs: Path) -> None:
    score_days(settings(logs, private=True), scorer=SCORER)
    made = [logs / "out", *(logs / "out").rglob("*")]
    assert len(made) > 10
    assert {mode(path) & 0o077 for path in made if not path.is_symlink()} == {0}


def test_object_storage_cannot_be_made_private() -> None:
    with pytest.raises(UsageError, match="private is for folders of this machine"):
        only_ours(Location.of("s3://bucket/runs"))
