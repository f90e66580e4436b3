"""The shift of a mean against SciPy's permutation test on the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test

from sgpu.evaluation.inputs import Floats
from sgpu.watch.mean_shift import CENTRES, Means, compare_means


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
