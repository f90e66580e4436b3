"""Tests of two samples against their definitions, SciPy's own, and the null."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import fisher_exact, ks_2samp, kstest, permutation_test

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import shares_of
from sgpu.watch.two_sample_tests import (
    BATCH,
    CENTRES,
    ENOUGH,
    Means,
    compare_distributions,
    compare_means,
    compare_shares,
    compare_vectors,
    gaussian_kernel,
)


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
    kernel = gaussian_kernel(rows[:10], rows[10:])
    assert kernel[0, 1] == pytest.approx(math.exp(-0.5))
    assert kernel.diagonal().tolist() == [0.0] * 20


def histogram(draw: np.random.Generator, rows: int, shift: float = 0.0) -> Floats:
    values = 1 / (1 + np.exp(-draw.normal(shift, 1, rows)))
    return np.histogram(values, np.linspace(0, 1, 51))[0].astype(np.float64)


def rows_of(counts: Floats) -> Floats:
    return np.repeat(CENTRES, counts.astype(int))


@pytest.mark.parametrize(("n", "m", "shift"), [(20, 150, 0.6), (60, 40, 0.3), (12, 900, 0.0)])
def test_it_is_the_permutation_test_of_scipy_on_binned_rows(n: int, m: int, shift: float) -> None:
    draw = np.random.default_rng(n)
    today, before = histogram(draw, n, shift), histogram(draw, m)
    expected = permutation_test(
        (rows_of(today), rows_of(before)),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        vectorized=True,
        n_resamples=5_000,
        rng=1,
    )
    found = [compare_means(today, before, 5_000, seed) for seed in range(40)]
    assert found[0].statistic == pytest.approx(expected.statistic, abs=1e-12)
    assert found[0].effect == abs(found[0].statistic)
    assert np.mean([one.p for one in found]) == pytest.approx(expected.pvalue, abs=0.005, rel=0.12)


def test_of_all_permutations_it_counts_those_as_far_apart() -> None:
    """Two rows against two, in the middles 0.01 and 0.99: 2 of the 6 ways are as far apart, by hand."""
    today, before = np.zeros(50), np.zeros(50)
    today[0], before[49] = 2, 2
    assert compare_means(today, before, 3000, seed=3).statistic == pytest.approx(-0.98)
    shares = [compare_means(today, before, 3000, seed=seed).p for seed in range(80)]
    assert np.mean(shares) == pytest.approx(1 / 3, abs=0.06)


def test_p_values_are_uniform_where_nothing_moved() -> None:
    draw = np.random.default_rng(4)
    p = [compare_means(histogram(draw, 25), histogram(draw, 300), 400, seed).p for seed in range(300)]
    assert np.mean(np.array(p) <= 0.1) == pytest.approx(0.1, abs=0.055)


def test_a_reference_of_a_billion_rows_is_compared_with() -> None:
    draw = np.random.default_rng(6)
    today, before = histogram(draw, 60, 1.0), 1e7 * histogram(draw, 300)
    found = compare_means(today, before, 200, seed=0)
    assert found.p < 0.02 and found.effect == pytest.approx(
        today @ CENTRES / today.sum() - before @ CENTRES / before.sum(), abs=1e-6
    )


def test_an_effect_below_its_bound_costs_no_permutation_and_flags_nothing() -> None:
    draw = np.random.default_rng(5)
    made = Means(histogram(draw, 200, 0.4), histogram(draw, 2000), 0)
    assert made.compared(10_000, least_effect=0.5).p == 1.0
    assert made.compared(10_000, least_effect=0.01).p < 0.01


MIDDLES = (np.arange(50) + 0.5) / 50


@pytest.mark.parametrize(
    ("seed", "n", "m", "shift"), [(0, 200, 300, 0), (1, 500, 9000, 0.3), (2, 50, 40, 1), (3, 3000, 200, 0.1)]
)
def test_it_is_the_test_of_scipy_on_binned_rows(seed: int, n: int, m: int, shift: float) -> None:
    draw = np.random.default_rng(seed)
    rows = [1 / (1 + np.exp(-draw.normal(by, 1, size))) for size, by in ((n, shift), (m, 0))]
    today, before = (np.histogram(values, np.linspace(0, 1, 51))[0].astype(float) for values in rows)
    expected = ks_2samp(
        np.repeat(MIDDLES, today.astype(int)), np.repeat(MIDDLES, before.astype(int)), method="asymp"
    )
    found = compare_distributions(today, before)
    assert found.statistic == found.effect == pytest.approx(expected.statistic, abs=1e-12)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)


def test_binning_costs_at_most_the_rows_of_one_bin() -> None:
    draw = np.random.default_rng(5)
    one, other = draw.beta(3, 2, 4000), draw.beta(2, 2, 4000)
    edges = np.linspace(0, 1, 51)
    histograms = [np.histogram(values, edges)[0].astype(float) for values in (one, other)]
    exact = ks_2samp(one, other).statistic
    largest_bin = max(counts.max() / counts.sum() for counts in histograms)
    assert exact - largest_bin <= compare_distributions(*histograms).statistic <= exact


def test_equal_histograms_have_p_one() -> None:
    counts = np.full(50, 10.0)
    assert compare_distributions(counts, 3 * counts) == (pytest.approx(0), pytest.approx(0), 1.0)


@pytest.mark.parametrize("table", [(30, 200, 40, 800), (0, 200, 5, 300), (12, 12, 1, 30), (5, 100, 5, 100)])
def test_it_is_fishers_one_sided_test(table: tuple[int, int, int, int]) -> None:
    part, rows, before, rows_before = table
    found = compare_shares(*table)
    expected = fisher_exact([[part, rows - part], [before, rows_before - before]], alternative="greater")
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.effect == pytest.approx(part / rows - before / rows_before)


def test_a_fall_is_no_rise() -> None:
    found = compare_shares(5, 1000, 300, 1000)
    assert found.effect < 0 and found.p > 0.999
