import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sgpu.probes.states import best_layers, validation_auroc


def test_one_layer_is_the_best_one():
    assert best_layers([0.6, 0.9, 0.7], at_least=1) == (1, 2)


def test_a_range_is_judged_by_its_mean_not_by_its_best_layer():
    assert best_layers([1.0, 0.1, 0.7, 0.7, 0.1], at_least=2) == (2, 4)


def test_a_longer_range_wins_where_its_mean_is_higher():
    # Of the ranges of 2 the best mean is 0.75, of the whole 0.8.
    assert best_layers([0.9, 0.6, 0.9], at_least=2) == (0, 3)


def test_the_shortest_and_then_the_earliest_of_equals_is_taken():
    assert best_layers([0.8] * 7, at_least=3) == (0, 3)


def test_fewer_layers_than_asked_for_are_all_read():
    assert best_layers([0.5, 0.9], at_least=5) == (0, 2)


@pytest.mark.parametrize(("layers", "at_least", "expected"), [(5, 1, (2, 3)), (9, 5, (2, 7)), (2, 5, (0, 2))])
def test_where_validation_cannot_tell_the_middle_is_read(layers, at_least, expected):
    assert best_layers([None] * layers, at_least) == expected


def test_area_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    target, score = rng.integers(2, size=50).astype(float), rng.integers(9, size=50).astype(float)
    assert validation_auroc(score, target) == pytest.approx(roc_auc_score(target, score), rel=1e-14)


@pytest.mark.parametrize("target", [[], [1.0], [0.0, 0.0]])
def test_one_class_or_no_rows_have_no_area(target):
    assert validation_auroc(np.zeros(len(target)), np.array(target)) is None
