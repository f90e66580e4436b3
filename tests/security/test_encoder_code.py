"""An encoder that somebody else has made runs no code, and one that a model names by a path is not opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgpu.encoders import load_encoder
from sgpu.encoders.cards import find_encoder
from sgpu.errors import IntegrityError, UsageError
from sgpu.fitted.model import load_model
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from tests.scoring.made_models import saved
from tests.scoring.nights.nights import DAY, row, scores, settings, write


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packaged encoder under another path."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in find_encoder("all-MiniLM-L6-v2")[1].iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def with_own_code(folder: Path, file: str) -> Path:
    trace = folder / "ran"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    content = json.loads((folder / file).read_text())
    (folder / file).unlink()
    kinds = ("AutoConfig", "AutoModel", "AutoTokenizer")
    content |= {"model_type": "own", "auto_map": dict.fromkeys(kinds, "own.Own")}
    (folder / file).write_text(json.dumps(content))
    return trace


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_an_encoder_is_refused_by_name_and_nobody_is_asked(
    file: str, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = with_own_code(encoder, file)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(IntegrityError, match=rf"{file} asks to run code of its own \(auto_map.*own\.Own"):
        load_encoder(str(encoder))
    assert not trace.exists()


def model_of(encoder: Path, folder: Path) -> Path:
    """A model that names its encoder by a folder."""
    saved(folder, encoder=str(encoder))
    content = json.loads((folder / "bundle.json").read_text())
    content["spectrum"]["encoder"]["fingerprint"] = load_encoder(str(encoder)).fingerprint
    (folder / "bundle.json").write_text(json.dumps(content))
    return folder


def test_an_encoder_that_a_model_names_by_its_folder_is_opened_only_if_allowed(
    encoder: Path, tmp_path: Path
) -> None:
    model = model_of(encoder, tmp_path / "model")
    with pytest.raises(UsageError, match=r"by the folder .*/encoder.*allow_encoder_path"):
        load_model(model)
    answers = [["Lima", "Lima", "Cusco", "Quito"]]
    assert 0 < load_model(model, allow_encoder_path=True).predict(answers).probability[0] < 1


def test_a_night_opens_such_an_encoder_only_with_the_flag(encoder: Path, tmp_path: Path) -> None:
    def night(place: Path, **flags: bool) -> None:
        model_of(encoder, place / "model")
        write(place / "logs", "a.jsonl", [row("r", ["Lima", "Lima", "Cusco", "Quito"])])
        score_day(settings(place, max_bad=1, **flags), DAY, source=ScorerSource(place / "out" / "work"))

    with pytest.raises(UsageError, match="set allow_encoder_path to true"):
        night(tmp_path / "without")
    night(tmp_path / "with", allow_encoder_path=True)
    assert scores(tmp_path / "with")["request_id"].to_list() == ["r"]


def test_a_model_that_does_not_say_which_weights_it_means_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", encoder="all-MiniLM-L6-v2")
    content = json.loads((folder / "bundle.json").read_text())
    content["spectrum"]["encoder"]["fingerprint"] = None
    (folder / "bundle.json").write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match=r"fingerprint: null.*sgpu fit") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
