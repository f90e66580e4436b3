import itertools

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.evaluation import holm


def by_closed_testing(p):
    """The largest Bonferroni p of all groups of hypotheses that hold the one in question."""
    m = len(p)
    groups = [g for size in range(1, m + 1) for g in itertools.combinations(range(m), size)]
    return [max(min(1.0, len(g) * min(p[j] for j in g)) for g in groups if i in g) for i in range(m)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_agrees_with_testing_every_group_of_hypotheses(m, seed):
    p = np.random.default_rng(seed).random(m) ** 3
    np.testing.assert_allclose(holm(p), by_closed_testing(p), rtol=1e-14)


def test_hand_computed():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_tied_p_values_are_adjusted_alike():
    np.testing.assert_allclose(holm([0.02, 0.02, 0.5]), [0.06, 0.06, 0.5])


def test_undefined_comparisons_are_not_counted():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.02]), [0.02, np.nan, 0.02])
    assert np.isnan(holm([np.nan, np.nan])).all()
    assert holm([]).shape == (0,)


def test_never_above_one():
    assert holm([0.9, 0.8, 1.0]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("bad", [[0.5, -0.1], [0.5, 1.1], [[0.5]]])
def test_values_that_are_no_probabilities_are_refused(bad):
    with pytest.raises(DataError, match="p values must be a vector"):
        holm(bad)
