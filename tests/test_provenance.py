from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sgpu import __version__
from sgpu.provenance import (
    available_cores,
    code_version,
    environment,
    package_version,
    utc_now,
)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_checkout_is_known_by_its_commit(checkout: Path) -> None:
    assert code_version(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_changed_tracked_file_marks_the_version_dirty(checkout: Path) -> None:
    (checkout / "a.py").write_text("2\n")
    assert code_version(checkout) == git(checkout, "rev-parse", "HEAD") + "-dirty"


def test_an_untracked_file_does_not_mark_the_version_dirty(checkout: Path) -> None:
    (checkout / "results.csv").write_text("x\n")
    assert code_version(checkout) == git(checkout, "rev-parse", "HEAD")


def test_outside_a_checkout_the_package_version_stands(tmp_path: Path) -> None:
    assert code_version(tmp_path) == __version__


def test_a_folder_inside_another_repository_does_not_borrow_its_commit(checkout: Path) -> None:
    inner = checkout / "site-packages"
    inner.mkdir()
    assert code_version(inner) == __version__


def test_a_repository_without_a_commit_falls_back_to_the_package_version(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert code_version(tmp_path) == __version__


def test_without_git_the_package_version_stands(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code_version.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert code_version(checkout) == __version__


def test_the_version_does_not_change_while_a_process_runs(checkout: Path) -> None:
    before = code_version(checkout)
    (checkout / "a.py").write_text("3\n")
    assert code_version(checkout) == before


def test_an_absent_package_has_no_version() -> None:
    assert package_version("no-such-distribution-here") is None


def test_environment_survives_json_and_names_what_is_installed() -> None:
    import numpy

    found = environment()
    assert json.loads(json.dumps(found)) == found
    assert found["packages"]["numpy"] == numpy.__version__
    assert found["cores"] == available_cores() >= 1


def test_utc_now_is_iso_with_an_offset() -> None:
    stamp = datetime.fromisoformat(utc_now())
    assert stamp.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - stamp) < timedelta(seconds=5)
