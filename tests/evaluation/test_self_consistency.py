from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from sgpu.errors import DataError
from sgpu.evaluation.self_consistency import consistent_confusion


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
