"""`sgpu-base` as it ships: small, without code and encoder, and it ranks at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sgpu
from sgpu.fitted.model import READY, FittedModel

FOLDER = Path(sgpu.__file__).parent / "fitted" / READY
ASKED = "What is the capital of Peru?"


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return sgpu.load_model(READY)


def test_files_are_small_and_hold_no_code() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in files) < 200_000


def test_answer_that_the_others_agree_with_is_shown_with_a_confidence_and_no_probability(
    model: FittedModel,
) -> None:
    sets = [["Cusco", "Lima", "It is Lima."], ["Lima"] * 3, ["Lima", "Cusco", "Quito"], ["I don't know."] * 3]
    result = model.predict(sets, [ASKED] * 4)
    assert result.answer == ["Lima", "Lima", "Lima", None]
    assert result.confidence.tolist() == [0.5, 1, 0, 0]
    assert result.reason == ["needs_labels"] * 3 + ["refusal"]
    assert np.isnan(result.probability).all() and np.isnan(result.p_answer).all()


def test_confidence_never_falls_with_agreement_and_does_not_depend_on_the_number_of_answers(
    model: FittedModel,
) -> None:
    others = "Bonn Oslo Rome Kyiv Baku Doha Riga Suva Apia Nuuk Bern Tunis Dakar Accra Sofia Lome Cusco"
    sets = [["Lima"] * k + others.split()[: 18 - k] for k in range(1, 19)]
    confidence = model.predict(sets, [ASKED] * 18).confidence
    assert (np.diff(confidence) > 0).all()
    few, many = model.predict([["Lima"] * 2, ["Lima"] * 30], [ASKED] * 2).confidence
    assert few == many


def test_fifty_labels_of_a_model_that_is_nearly_always_right_make_high_probabilities(
    model: FittedModel,
) -> None:
    sets = [["Lima"] * 4, ["Lima", "Lima", "Lima", "Cusco"]] * 30
    mine = model.recalibrate(sets, [1] * 57 + [0] * 3, [ASKED] * 60)
    assert mine.predict(sets[:2], [ASKED] * 2).p_answer == pytest.approx([0.95, 0.95], abs=0.04)


def test_card_says_what_it_was_measured_on(model: FittedModel) -> None:
    left_out = model.provenance["left_out"]
    assert set(left_out) == {"chosen", "other"} and len(left_out["chosen"]) >= 10
    for measures in left_out["chosen"].values():
        assert {"auroc", "log_loss", "ece"} <= set(measures)
