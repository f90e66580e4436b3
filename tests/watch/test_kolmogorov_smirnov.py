"""The test on histograms against SciPy's on the rows in them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from sgpu.watch.kolmogorov_smirnov import compare_distributions

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
