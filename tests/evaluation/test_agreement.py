"""Kappa of two judges, and the confusion of consistent sets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from sgpu.errors import DataError
from sgpu.evaluation.agreement import agreement, consistent_confusion
from sgpu.evaluation.bootstrap import resampled_rows


def votes(n=300, seed=0):
    rng = np.random.default_rng(seed)
    one = (rng.random(n) < 0.7).astype(float)
    return one, np.where(rng.random(n) < 0.85, one, 1 - one)


def test_kappa_and_its_interval_agree_with_scikit_learn():
    one, other = votes()
    found = agreement(one, other, n_resamples=200, seed=1)
    rows = np.concatenate(list(resampled_rows(300, 200, seed=1)))
    looped = [cohen_kappa_score(one[r], other[r]) for r in rows]
    assert found.kappa.value == pytest.approx(cohen_kappa_score(one, other), abs=1e-14)
    assert found.kappa[1:3] == pytest.approx(tuple(np.quantile(looped, [0.025, 0.975])), abs=1e-12)
    assert found.agreement.value == np.mean(one == other)


def test_missing_votes_are_left_out_and_counted():
    found = agreement([1, 0, None, 1, np.nan], [1, 1, 0, None, None], n_resamples=10)
    assert (found.n, found.n_missing) == (2, 3)
    assert found.agreement.value == 0.5


def test_chance_agreement_gives_zero():
    assert agreement([1, 1, 0, 0], [1, 0, 1, 0], n_resamples=10).kappa.value == 0


def test_judges_that_never_vary_have_no_kappa():
    found = agreement(np.ones(5), np.ones(5), n_resamples=10)
    assert np.isnan(found.kappa.value)
    assert found.kappa.n_resamples_used == 0
    assert found.agreement.value == 1


def test_no_common_item_is_undefined():
    found = agreement([1, None], [None, 0], n_resamples=10)
    assert np.isnan(found.kappa.value)
    assert np.isnan(found.agreement.value)


def test_lists_of_two_lengths_are_refused():
    with pytest.raises(DataError, match="align"):
        agreement([1, 0], [1])


def test_counts_are_those_of_scikit_learn_on_the_consistent_sets() -> None:
    rng = np.random.default_rng(0)
    share, probability = rng.choice([0.3, 0.5, 0.55, 0.9], 200), rng.random(200)
    label = rng.integers(0, 2, 200).astype(float)
    found = consistent_confusion(share, probability, label)
    chosen = share > 0.5
    (tn, fp), (fn, tp) = confusion_matrix(label[chosen], probability[chosen] >= 0.5)
    assert (found.tn, found.fp, found.fn, found.tp) == (tn, fp, fn, tp)
    assert found.recall == tp / (tp + fn) and found.precision == tp / (tp + fp)
    assert found.accuracy == (tp + tn) / chosen.sum() and found.n == chosen.sum()


def test_exactly_half_of_the_answers_is_not_consistent() -> None:
    assert consistent_confusion([0.5], [0.9], [1]).n == 0


def test_missing_labels_and_probabilities_are_counted_apart() -> None:
    found = consistent_confusion([0.9, 0.9, 0.9], [0.8, np.nan, 0.8], [1, 1, np.nan])
    assert (found.tp, found.n, found.n_missing) == (1, 1, 2)


def test_shares_of_nothing_are_undefined() -> None:
    found = consistent_confusion([0.2], [0.9], [1])
    assert all(math.isnan(value) for value in (found.recall, found.precision, found.accuracy))


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(2,\), \(1,\)"):
        consistent_confusion([0.9, 0.9], [0.5], [1, 0])
