"""One small night with the packaged sentence encoder: the table holds what the model says by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgpu.encoders import load_encoder
from sgpu.errors import IntegrityError
from sgpu.fitted.model import FittedModel, load_model
from sgpu.fitted.spectrum_classifier import SpectrumClassifier
from sgpu.gp import GPClassifier
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from tests.scoring.nights.nights import DAY, row, scores, settings, write

SETS = {
    "agree": ["Paris", "Paris", "It is Paris.", "paris"],
    "differ": ["Paris", "a green horse", "42 metres", "nobody knows"],
    "half": ["Paris", "Paris", "Lyon", "Lyon"],
    "long": ["Paris " * 300, "Lyon " * 300, "Paris", "Lyon"],
    "three": ["Paris", "Lyon", "Paris"],
}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    encoder = load_encoder("all-MiniLM-L6-v2", "float32")
    spectra = np.sort(np.random.default_rng(0).dirichlet([0.5] * 4, 80) * 4, axis=1)[:, ::-1]
    gp = GPClassifier().fit(spectra, (spectra[:, 0] > 2.5).astype(int))
    spectrum = SpectrumClassifier(gp, encoder.name, encoder.dtype, 4, encoder.fingerprint)
    FittedModel(spectrum).save(tmp_path / "model")
    write(tmp_path / "logs", "a.jsonl", [row(name, texts) for name, texts in SETS.items()])
    return tmp_path


def night(place: Path) -> None:
    score_day(settings(place, max_bad=1), DAY, source=ScorerSource(place / "out" / "work"))


def test_the_table_holds_what_the_model_says(real: Path) -> None:
    night(real)
    expected = load_model(real / "model").predict(
        [SETS[name] for name in ("agree", "differ", "half", "long")]
    )
    found = scores(real)
    assert found["request_id"].to_list() == ["agree", "differ", "half", "long"]
    assert found["probability"].to_list() == pytest.approx(expected.probability.tolist(), abs=1e-5)
    assert found["std"].to_list() == pytest.approx(expected.sd.tolist(), abs=1e-5)
    assert found["spectrum"].list.sum().to_list() == pytest.approx([4.0] * 4)
    assert found["probability"][0] > found["probability"][1]
    assert found["encoder"].unique().to_list() == ["all-MiniLM-L6-v2"]


def test_a_model_that_was_tampered_with_scores_nothing(real: Path) -> None:
    file = real / "model" / "gp.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(IntegrityError):
        night(real)
    assert not (real / "out" / "scores").exists()
