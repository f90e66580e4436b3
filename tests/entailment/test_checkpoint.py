from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.entailment.checkpoint import CARDS, DEFAULT_MODEL, find_commit, locate
from sgpu.errors import DataError, IntegrityError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", CARDS)
def test_a_short_name_stands_for_a_repository_of_the_hub(hub: Path, name: str) -> None:
    folder = hub / f"models--microsoft--{name}" / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    assert locate(name, "a" * 40) == folder


def test_the_study_s_own_name_is_pinned_and_a_pickle_will_do(hub: Path) -> None:
    pin = CARDS["deberta-large-mnli"].revision
    assert pin is not None
    folder = hub / "models--microsoft--deberta-large-mnli" / "snapshots" / pin
    folder.mkdir(parents=True)
    with pytest.raises(IntegrityError, match=r"neither a \.safetensors file nor pytorch_model\.bin"):
        locate(DEFAULT_MODEL)
    (folder / "pytorch_model.bin").touch()
    assert locate(DEFAULT_MODEL) == folder
    assert find_commit(folder) == pin


@pytest.mark.usefixtures("hub")
def test_a_classifier_that_is_not_here_is_refused_with_the_command_that_gets_it() -> None:
    with pytest.raises(DataError, match="hf download microsoft/deberta-v2-xlarge-mnli --revision refs/pr/3"):
        locate("deberta-v2-xlarge-mnli", "refs/pr/3")
