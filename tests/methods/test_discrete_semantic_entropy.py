from itertools import permutations

import numpy as np
import pytest
import scipy.stats

from sgpu.methods.base import CellFeatures
from sgpu.methods.discrete_semantic_entropy import METHOD, discrete_semantic_entropy


@pytest.mark.parametrize(
    ("clusters", "entropy"),
    [([0, 1, 0, 1, 2], 1.0549201680), ([0, 0, 1, 0, 1], 0.6730116670)],
)
def test_matches_the_golden_values(clusters, entropy):
    assert discrete_semantic_entropy(np.array(clusters)) == pytest.approx(entropy, abs=5e-11)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_one_cluster_gives_exactly_zero_and_n_clusters_the_log_of_n(n):
    one = discrete_semantic_entropy(np.zeros(n, dtype=np.int64))
    assert one == 0.0 and not np.signbit(one)
    assert discrete_semantic_entropy(np.arange(n)) == pytest.approx(np.log(n), rel=1e-14)


def test_agrees_with_scipy_on_random_clusters():
    clusters = np.random.default_rng(0).integers(0, 6, size=(300, 20))
    expected = [scipy.stats.entropy(np.bincount(row)) for row in clusters]
    np.testing.assert_allclose(discrete_semantic_entropy(clusters), expected, rtol=1e-13, atol=1e-15)


def test_equal_cluster_sizes_tie_to_the_last_bit_whatever_the_order_of_answers():
    orders = np.array(sorted(set(permutations([0, 0, 0, 1, 1, 2, 3]))))
    assert len(np.unique(discrete_semantic_entropy(orders))) == 1
    rng = np.random.default_rng(1)
    of_twenty = rng.permuted(np.tile(np.repeat(np.arange(4), [9, 6, 4, 1]), (1000, 1)), axis=1)
    assert len(np.unique(discrete_semantic_entropy(of_twenty))) == 1


def test_a_missing_answer_is_not_counted():
    with_missing, without = np.array([0, -1, 0, 1, -1]), np.array([0, 0, 1])
    assert discrete_semantic_entropy(with_missing) == discrete_semantic_entropy(without)


def test_no_answer_is_missing_not_certain():
    assert np.isnan(discrete_semantic_entropy(np.array([-1, -1])))


def test_confidence_falls_with_entropy_and_keeps_missing_rows():
    clusters = np.array([[0, 0], [0, 1], [-1, -1]])
    confidence = METHOD.confidence(CellFeatures(["a", "b", "c"], [["x", "y"]] * 3, clusters=clusters))
    np.testing.assert_allclose(confidence, [0, -np.log(2), np.nan], rtol=1e-15)
