"""The discrepancy against its definition, and its p-value under the null and under a shift."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kstest

from sgpu.fitted.profile import shares_of
from sgpu.watch.mmd import BATCH, ENOUGH, compare_vectors, gaussian_kernel


def by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """Lemma 6 of Gretton et al. 2012, pair by pair."""
    rows = [*x, *y]
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(rows, 2)]
    width = float(np.median(distances))

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return math.exp(-float(((a - b) ** 2).sum()) / (2 * width**2))

    n, m = len(x), len(y)
    within = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    rest = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    between = sum(k(a, b) for a in x for b in y) / (n * m)
    return within + rest - 2 * between


@pytest.mark.parametrize(("n", "m", "shift"), [(12, 12, 0.0), (9, 21, 0.8), (30, 7, 0.1)])
def test_it_is_what_the_definition_gives(n: int, m: int, shift: float) -> None:
    draw = np.random.default_rng(n)
    x, y = draw.dirichlet(np.ones(5), n) + shift, draw.dirichlet(np.ones(5), m)
    found = compare_vectors(x, y, 10, 0)
    assert found.statistic == pytest.approx(by_definition(x, y), abs=1e-6)
    assert found.effect == pytest.approx(math.sqrt(max(by_definition(x, y), 0)), abs=1e-3)


def test_p_values_are_uniform_where_nothing_changed() -> None:
    draw = np.random.default_rng(0)
    p = np.array([
        compare_vectors(draw.dirichlet(np.ones(4), 40), draw.dirichlet(np.ones(4), 60), 400, seed).p
        for seed in range(300)
    ])  # fmt: skip
    assert kstest(p, "uniform").pvalue > 0.01
    assert np.mean(p <= 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_a_planted_shift_is_found_and_its_p_value_is_as_small_as_the_permutations_allow() -> None:
    draw = np.random.default_rng(1)
    x, y = (shares_of(20 * draw.dirichlet(np.full(20, spread), 200)) for spread in (0.1, 0.2))
    found = compare_vectors(x, y, 999, 0)
    assert found.p == pytest.approx(1 / 1000)
    assert found.effect > 0.2


def test_more_permutations_allow_a_smaller_p_value() -> None:
    x, y = np.zeros((30, 2)), np.ones((30, 2))
    assert compare_vectors(x, y, 5000, 0).p == pytest.approx(1 / 5001)


def test_without_permutations_the_effect_is_measured_and_p_is_one() -> None:
    x, y = np.zeros((30, 2)), np.ones((30, 2))
    measured, tested = (compare_vectors(x, y, permutations, 0) for permutations in (0, 100))
    assert measured == tested._replace(p=1.0)


def test_a_test_that_shows_nothing_stops_early_with_a_share_of_what_was_tried() -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(50, 3)), draw.normal(size=(50, 3))
    tried = ENOUGH / compare_vectors(x, y, 10**9, 0).p  # would take days if it did not stop
    assert tried == pytest.approx(round(tried)) and ENOUGH <= tried < 10 * BATCH


def test_stopping_early_gives_the_p_value_of_all_permutations() -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(0.2, 1, size=(50, 3)), draw.normal(size=(50, 3))
    everything = np.concatenate([x, y])
    seen = compare_vectors(x, y, 1, 0).statistic
    reached = 0
    for _ in range(3000):
        draw.shuffle(everything)
        reached += compare_vectors(everything[:50], everything[50:], 1, 0).statistic >= seen
    whole = reached / 3000
    assert 0.005 < whole < 0.05  # so that it stops after several batches
    # The relative error of a share after ENOUGH hits is 1 / sqrt(ENOUGH).
    ours = np.mean([compare_vectors(x, y, 10**9, seed).p for seed in range(20)])
    assert ours == pytest.approx(whole, rel=4 / math.sqrt(20 * ENOUGH) + 4 / math.sqrt(reached))


def test_the_seed_decides_and_the_same_seed_gives_the_same() -> None:
    draw = np.random.default_rng(3)
    x, y = draw.normal(0.3, 1, size=(40, 3)), draw.normal(size=(40, 3))
    values = [compare_vectors(x, y, 2000, seed).p for seed in (0, 0, 1, 2)]
    assert values[0] == values[1] and len(set(values)) > 1
    assert max(values) < 3 * min(values)


def test_rows_that_are_all_equal_show_nothing() -> None:
    assert compare_vectors(np.ones((20, 3)), np.ones((30, 3)), 500, 0) == (0.0, 0.0, 1.0)


def test_the_width_is_of_the_rows_that_differ_where_most_are_equal() -> None:
    rows = np.zeros((20, 1))
    rows[0] = 3.0
    kernel = gaussian_kernel(rows[:10], rows[10:]).kernel
    assert kernel[0, 1] == pytest.approx(math.exp(-0.5))
    assert kernel.diagonal().tolist() == [0.0] * 20
