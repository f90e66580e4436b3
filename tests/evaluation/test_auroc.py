import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sgpu.evaluation import auroc


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
