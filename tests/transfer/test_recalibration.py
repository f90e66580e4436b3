from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from sgpu.evaluation.calibration import ece
from sgpu.evaluation.mapping import UndefinedMap
from sgpu.transfer.recalibration import recalibrated

RNG = np.random.default_rng(0)
P = RNG.uniform(0.05, 0.95, 4000)


def drawn(probability: np.ndarray) -> np.ndarray:
    return (np.random.default_rng(1).random(len(probability)) < probability).astype(np.float64)


def test_a_shift_that_the_labels_were_drawn_with_is_found() -> None:
    truth = expit(logit(P) - 1.5)
    moved = recalibrated("shift", P, P, drawn(truth))
    # The standard error of the shift is about 1 / sqrt(4000 * 0.16) = 0.04.
    assert np.median(logit(moved) - logit(P)) == pytest.approx(-1.5, abs=0.12)
    assert ece(moved, drawn(truth)) < 0.3 * ece(P, drawn(truth))


def test_platt_finds_a_slope_and_a_shift() -> None:
    truth = expit(0.5 * logit(P) + 1)
    moved = recalibrated("platt", P, P, drawn(truth))
    assert np.abs(moved - truth).max() < 0.05


@pytest.mark.parametrize("name", ["shift", "platt"])
def test_the_order_stays_and_missing_stays_missing(name: str) -> None:
    values = np.concatenate([P[:200], [np.nan]])
    moved = recalibrated(name, values, P, drawn(P))
    assert np.isnan(moved[-1])
    assert (np.argsort(moved[:-1]) == np.argsort(values[:-1])).all()


def test_no_labels_change_nothing() -> None:
    assert recalibrated("shift", P, P[:0], P[:0]) is P


def test_one_class_does_not_give_certainty() -> None:
    moved = recalibrated("shift", np.array([0.5]), np.full(25, 0.5), np.ones(25))
    # The mode of 25 right answers under N(0, 4): 25 (1 - s) = x / 4 with s = expit(x).
    x = float(logit(moved[0]))
    assert 25 * (1 - expit(x)) == pytest.approx(x / 4, abs=1e-3)
    with pytest.raises(UndefinedMap, match="right and wrong"):
        recalibrated("platt", np.array([0.5]), np.linspace(0.1, 0.9, 25), np.ones(25))


def test_a_few_labels_may_not_turn_the_ranking_round() -> None:
    with pytest.raises(UndefinedMap, match="negative"):
        recalibrated("platt", P, np.array([0.9, 0.8, 0.2, 0.1]), np.array([0.0, 0.0, 1.0, 1.0]))
