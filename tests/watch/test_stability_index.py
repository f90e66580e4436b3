"""The stability index against sums done by hand, and its test under the null."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest

from sgpu.watch.two_sample_tests import compare_counts, equal_bins, stability_index


def test_two_bins_give_what_a_hand_computes() -> None:
    # Shares 0.3 and 0.7 against 0.5 and 0.5: -0.2 ln 0.6 + 0.2 ln 1.4 = 0.102165 + 0.067294.
    found = stability_index(np.array([30_000.0, 70_000.0]), np.array([50_000.0, 50_000.0]))
    assert found == pytest.approx(0.169459, abs=1e-5)


def test_half_a_row_is_added_to_every_bin() -> None:
    # (10.5, 0.5) / 11 against (0.5, 10.5) / 11: 2 x 10 / 11 x ln 21.
    found = stability_index(np.array([10.0, 0.0]), np.array([0.0, 10.0]))
    assert found == pytest.approx(20 / 11 * math.log(21), rel=1e-12)


def test_equal_shares_of_unequal_numbers_have_no_distance() -> None:
    counts = np.array([100.0, 300.0, 600.0])
    assert stability_index(counts, 28 * counts) == pytest.approx(0, abs=1e-5)


def test_two_by_two_has_the_chi_squared_of_the_formula() -> None:
    a, b, c, d = 30.0, 70.0, 45.0, 55.0
    found = compare_counts(np.array([a, b]), np.array([c, d]))
    expected = 200 * (a * d - b * c) ** 2 / ((a + b) * (c + d) * (a + c) * (b + d))
    assert found.statistic == pytest.approx(expected, rel=1e-12)
    assert found.p == pytest.approx(math.erfc(math.sqrt(expected / 2)), rel=1e-9)


def test_wider_bins_hold_about_a_tenth_of_both_sides_each() -> None:
    even = np.full(50, 20.0)
    assert np.bincount(equal_bins(even, 28 * even)).tolist() == [5] * 10


def test_what_is_new_today_is_not_merged_into_what_was_before() -> None:
    today, before = np.zeros(50), np.zeros(50)
    today[10], before[11] = 200, 200 * 28
    assert compare_counts(today, before).effect > 5


def test_rows_of_a_single_bin_do_not_differ() -> None:
    only = np.zeros(50)
    only[49] = 300
    assert compare_counts(only, 2 * only)[1:] == (pytest.approx(0, abs=1e-4), 1.0)


@pytest.mark.parametrize("rows", [(200, 200), (300, 8400)])
def test_p_values_are_uniform_where_nothing_changed(rows: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    edges = np.linspace(0, 1, 51)
    p = [
        compare_counts(*(np.histogram(draw.beta(4, 2, n), edges)[0].astype(float) for n in rows)).p
        for _ in range(400)
    ]
    assert kstest(p, "uniform").pvalue > 0.01
    assert np.mean(np.array(p) <= 0.05) < 0.085  # 0.05 + 3 standard errors
