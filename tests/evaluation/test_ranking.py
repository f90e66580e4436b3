"""AUROC and AUARC against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sgpu.errors import UsageError
from sgpu.evaluation.ranking import auarc, auarc_20, auroc, retention_curve, selective_accuracy


def test_counts_the_pairs_won():
    # Right at 4 and 2, wrong at 3 and 1: 4 beats both, 2 beats one of two.
    assert auroc(np.array([4.0, 3, 2, 1]), np.array([1.0, 0, 1, 0])) == 0.75


@pytest.mark.parametrize("decimals", [1, 2, 12])
def test_agrees_with_scikit_learn_with_and_without_ties(decimals):
    rng = np.random.default_rng(decimals)
    label = rng.integers(0, 2, 999).astype(float)
    confidence = np.round(label + rng.normal(size=999), decimals)
    assert auroc(confidence, label) == pytest.approx(roc_auc_score(label, confidence), abs=1e-14)


def test_all_tied_is_a_coin_toss():
    assert auroc(np.zeros(10), np.arange(10) % 2) == 0.5


@pytest.mark.parametrize("label", [np.ones(5), np.zeros(5)])
def test_one_class_is_undefined(label):
    assert np.isnan(auroc(np.arange(5.0), label))


def test_infinite_confidences_are_the_most_extreme():
    confidence = np.array([-np.inf, -1e308, 1e308, np.inf, -np.inf])
    label = np.array([0.0, 0, 1, 1, 1])
    assert auroc(confidence, label) == pytest.approx((2 + 2 + 0.5) / 6)


def test_negative_confidence_mirrors_the_area():
    rng = np.random.default_rng(0)
    confidence, label = rng.normal(size=50).round(1), rng.integers(0, 2, 50)
    assert auroc(-confidence, label) == pytest.approx(1 - auroc(confidence, label), abs=1e-15)


def sample(n=500, decimals=12, seed=0):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.6).astype(float)
    return np.round(label + rng.normal(size=n), decimals), label


def running_accuracy(confidence, label):
    ranked = label[np.argsort(-confidence, kind="stable")]
    return np.cumsum(ranked) / np.arange(1, len(ranked) + 1)


def test_exact_area_is_the_mean_running_accuracy():
    confidence, label = sample()
    assert auarc(confidence, label) == pytest.approx(running_accuracy(confidence, label).mean(), abs=1e-14)


def test_ties_give_the_mean_over_all_orders():
    confidence, label = sample(n=300, decimals=1)
    rng = np.random.default_rng(1)
    shuffled = []
    for _ in range(3000):
        order = rng.permutation(len(label))
        shuffled.append(running_accuracy(confidence[order], label[order]).mean())
    standard_error = np.std(shuffled) / np.sqrt(len(shuffled))
    assert auarc(confidence, label) == pytest.approx(np.mean(shuffled), abs=4 * standard_error)
    assert standard_error < 1e-4


def test_ties_do_not_depend_on_the_order_of_rows():
    confidence, label = sample(decimals=1)
    order = np.random.default_rng(1).permutation(len(label))
    assert auarc(confidence[order], label[order]) == pytest.approx(auarc(confidence, label), abs=1e-14)


def test_golden_values_of_a_hundred_ties_at_half():
    label = np.arange(100) % 2
    assert auarc(np.zeros(100), label) == pytest.approx(0.5, abs=1e-14)
    assert auarc_20(np.zeros(100), label) == pytest.approx(0.4736842105, abs=5e-11)


def test_ceilings_are_one_and_eighteen_nineteenths():
    confidence = np.random.default_rng(0).normal(size=77)
    assert auarc(confidence, np.ones(77)) == pytest.approx(1, abs=1e-14)
    assert auarc_20(confidence, np.ones(77)) == pytest.approx(18 / 19, abs=1e-14)


@pytest.mark.parametrize("n", [1, 2, 19, 20, 21, 500])
@pytest.mark.parametrize("decimals", [1, 12])
def test_twenty_rectangles_agree_with_numpy_quantiles(n, decimals):
    confidence, label = sample(n, decimals, seed=n)
    uncertainty, shares = -confidence, np.linspace(0.1, 1, 20)
    kept = [label[uncertainty <= np.quantile(uncertainty, q, method="linear")].mean() for q in shares]
    assert auarc_20(confidence, label) == pytest.approx(np.sum(kept) * 0.9 / 19, abs=1e-13)


def test_infinite_uncertainty_is_rejected_first():
    label = np.array([1.0, 1, 0])
    assert auarc(np.array([1.0, 2, -np.inf]), label) == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert np.isfinite(auarc_20(np.array([1.0, 2, -np.inf]), label))


@pytest.mark.parametrize("decimals", [1, 12])
def test_mean_of_the_retention_curve_is_the_area(decimals):
    confidence, label = sample(decimals=decimals)
    curve = retention_curve(confidence, label)
    assert curve.accuracy.mean() == pytest.approx(auarc(confidence, label), abs=1e-14)
    assert curve.kept[[0, -1]].tolist() == [1 / 500, 1]
    assert curve.accuracy[-1] == pytest.approx(label.mean(), abs=1e-15)


def test_retention_curve_of_no_rows_is_empty():
    assert retention_curve(np.empty(0), np.empty(0)).accuracy.shape == (0,)


def test_selective_accuracy_keeps_the_most_confident():
    confidence, label = np.arange(10.0), np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1.0])
    assert selective_accuracy(confidence, label, 0.8) == 6 / 8
    assert selective_accuracy(confidence, label, 0.21) == 1.0  # 2.1 rows: three
    assert selective_accuracy(confidence, label, 1.0) == 0.6


def test_selective_accuracy_averages_the_ties_at_its_edge():
    # Kept: the 1 at the top and one of two tied rows, one right and one wrong.
    assert selective_accuracy(np.array([2.0, 1, 1, 0]), np.array([1.0, 1, 0, 0]), 0.5) == 0.75


def test_coverage_rounding_does_not_add_a_row():
    # 0.07 * 100 is 7.000000000000001 in floating point.
    label = np.zeros(100)
    label[7] = 1
    assert selective_accuracy(-np.arange(100.0), label, 0.07) == 0.0


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1])
def test_coverage_outside_its_range_is_refused(coverage):
    with pytest.raises(UsageError, match="coverage is"):
        selective_accuracy(np.arange(3.0), np.ones(3), coverage)
