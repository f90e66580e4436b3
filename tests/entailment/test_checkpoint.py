from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.entailment.checkpoint import CARDS, locate
from sgpu.errors import DataError


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


@pytest.mark.usefixtures("hub")
def test_a_classifier_that_is_not_here_is_refused_with_the_command_that_gets_it() -> None:
    with pytest.raises(DataError, match="hf download microsoft/deberta-v2-xlarge-mnli --revision refs/pr/3"):
        locate("deberta-v2-xlarge-mnli", "refs/pr/3")
