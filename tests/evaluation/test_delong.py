import itertools

import numpy as np
import pytest
import scipy.stats

from sgpu.errors import DataError, UsageError
from sgpu.evaluation.delong import delong, few_rows_caution, few_rows_interval, placements
from sgpu.evaluation.ranking import auroc


def sample(n=200, noise=1.0, decimals=12, seed=0):
    """Two methods that see the same truth and share some of their noise."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.6).astype(float)
    shared = rng.normal(size=n)
    one, other = (np.round(label + shared + noise * rng.normal(size=n), decimals) for _ in range(2))
    return one, other, label


def by_definition(one, other, label):
    """Difference and variance from all pairs of a right and a wrong row, with no ranks."""
    right, wrong = np.flatnonzero(label == 1), np.flatnonzero(label == 0)
    won = [
        np.array([[(s[r] > s[w]) + (s[r] == s[w]) / 2 for w in wrong] for r in right]) for s in (one, other)
    ]
    by_right, by_wrong = (np.cov([w.mean(axis=axis) for w in won]) for axis in (1, 0))
    covariance = by_right / len(right) + by_wrong / len(wrong)
    contrast = np.array([1.0, -1.0])
    return won[0].mean() - won[1].mean(), contrast @ covariance @ contrast


@pytest.mark.parametrize("decimals", [0, 1, 12], ids=["heavy ties", "ties", "no ties"])
def test_agrees_with_the_sums_over_all_pairs(decimals):
    one, other, label = sample(60, decimals=decimals)
    value, variance = by_definition(one, other, label)
    found = delong(one, other, label)
    assert found.value == pytest.approx(value, abs=1e-13)
    assert found.se == pytest.approx(np.sqrt(variance), abs=1e-13)
    assert found.p == pytest.approx(2 * scipy.stats.norm.sf(abs(value) / np.sqrt(variance)), abs=1e-12)


def test_value_is_the_difference_of_the_areas():
    one, other, label = sample(decimals=1)
    assert delong(one, other, label).value == pytest.approx(
        auroc(one, label) - auroc(other, label), abs=1e-14
    )


def test_placements_average_to_the_area_on_either_side():
    one, other, label = sample(decimals=1)
    scores = np.stack([one, other])
    beaten, unbeaten = placements(scores[:, label == 1], scores[:, label == 0])
    areas = [auroc(one, label), auroc(other, label)]
    np.testing.assert_allclose(beaten.mean(axis=1), areas, atol=1e-14)
    np.testing.assert_allclose(unbeaten.mean(axis=1), areas, atol=1e-14)


def test_interval_is_normal_and_widens_with_the_level():
    one, other, label = sample()
    found = delong(one, other, label)
    half = scipy.stats.norm.ppf(0.975) * found.se
    assert (found.lo, found.hi) == pytest.approx((found.value - half, found.value + half), abs=1e-14)
    assert delong(one, other, label, level=0.99).lo < found.lo


def test_swapping_the_methods_changes_the_sign_only():
    one, other, label = sample()
    found, swapped = delong(one, other, label), delong(other, one, label)
    assert (swapped.value, swapped.p) == pytest.approx((-found.value, found.p), abs=1e-14)


def test_only_the_order_of_scores_counts_and_infinities_are_extremes():
    one, other, label = sample()
    one[np.argmax(one)], one[np.argmin(one)] = np.inf, -np.inf
    ranked = scipy.stats.rankdata(one)
    assert delong(one, other, label) == pytest.approx(delong(ranked, np.exp(other), label))


def test_p_agrees_with_swapping_the_methods_at_random():
    # Where neither method is better, swapping them in any row gives a difference as likely as the one seen.
    one, other, label = sample(150, noise=0.7, seed=3)
    # Ranks, so that the two are exchangeable row by row.
    one, other = scipy.stats.rankdata(one), scipy.stats.rankdata(other)
    found = scipy.stats.permutation_test(
        (one, other),
        lambda a, b: auroc(a, label) - auroc(b, label),
        permutation_type="samples",
        n_resamples=2000,
        rng=np.random.default_rng(0),
    )
    assert delong(one, other, label).p == pytest.approx(found.pvalue, abs=0.05)


def test_p_is_uniform_where_the_methods_are_equally_good():
    p = [delong(*sample(seed=seed)).p for seed in range(1000)]
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.07


def test_p_is_small_where_one_method_is_better():
    rng = np.random.default_rng(0)
    label = np.repeat([0.0, 1.0], 200)
    found = delong(label + 0.5 * rng.normal(size=400), label + 3 * rng.normal(size=400), label)
    assert found.p < 1e-6
    assert 0 < found.lo < found.value < found.hi


def test_methods_that_rank_alike_do_not_differ():
    one, _, label = sample()
    assert delong(one, 3 * one + 1, label) == (0.0, 0.0, 0.0, 0.0, 1.0, "")


def test_constant_methods_do_not_differ():
    found = delong(np.zeros(11), np.ones(11), np.repeat([0.0, 1.0], [3, 8]))
    assert (found.value, found.p) == (0.0, 1.0)


@pytest.mark.parametrize("n", [5, 7, 11])
def test_a_difference_without_variation_has_no_p(n):
    label = (np.arange(n) >= 3).astype(float)
    found = delong(label, np.zeros(n), label)
    assert found.value == 0.5
    assert np.isnan([found.lo, found.hi, found.p]).all()
    assert "not a row varies" in found.why


@pytest.mark.parametrize("label", [np.zeros(5), np.ones(5), np.empty(0)])
def test_one_class_is_undefined_and_says_so(label):
    found = delong(np.arange(len(label)), -np.arange(len(label)), label)
    assert np.isnan(found[:5]).all()
    assert found.why.startswith("one class")


def test_a_single_wrong_row_has_a_value_but_no_variance():
    label = np.array([0.0, 1, 1, 1])
    found = delong(np.array([0.0, 1, 2, 3]), np.array([1.5, 1, 2, 3]), label)
    assert found.value == pytest.approx(1 / 3)
    assert np.isnan(found.p)
    assert "3 right and 1 wrong" in found.why


def test_eleven_rows_stay_in_bounds_whatever_the_labels():
    one, other, _ = sample(11)
    for label in itertools.islice(itertools.product([0.0, 1.0], repeat=11), 0, None, 7):
        found = delong(one, other, np.array(label))
        assert np.isnan(found.p) == bool(found.why)
        assert np.isnan(found.p) or 0 <= found.p <= 1


def test_missing_scores_and_levels_out_of_range_are_refused():
    one, other, label = sample(20)
    with pytest.raises(UsageError, match="level is 1"):
        delong(one, other, label, level=1)
    one[3] = np.nan
    with pytest.raises(DataError, match="row 3 is NaN"):
        delong(one, other, label)


def few(right, wrong, noise, seed=0):
    rng = np.random.default_rng(seed)
    label = np.repeat([1.0, 0.0], [right, wrong])
    return label + noise * rng.normal(size=right + wrong), label


def test_the_interval_of_few_rows_is_delongs_on_the_scale_of_the_logit():
    score, label = few(14, 9, 0.9)
    # The difference to a constant score has the variance of the area itself.
    difference, variance = by_definition(score, np.zeros(23), label)
    area = difference + 0.5
    half = 1.959963984540054 * np.sqrt(variance) / (area * (1 - area))
    expected = [1 / (1 + np.exp(-(np.log(area / (1 - area)) + side * half))) for side in (-1, 1)]
    assert 0.5 < area < 1
    assert few_rows_interval(score, label) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("right", "wrong"), [(12, 12), (5, 40), (1, 9)])
def test_a_perfect_area_has_the_exact_bound_of_as_many_pairs_as_the_smaller_class_has_rows(right, wrong):
    label = np.repeat([1.0, 0.0], [right, wrong])
    fewest = min(right, wrong)
    exact = scipy.stats.binomtest(fewest, fewest).proportion_ci(method="exact")
    assert few_rows_interval(label, label) == pytest.approx((exact.low, 1.0), abs=1e-12)
    worst = scipy.stats.binomtest(0, fewest).proportion_ci(method="exact")
    assert few_rows_interval(-label, label) == pytest.approx((0.0, worst.high), abs=1e-12)


def test_a_score_that_never_varies_is_undecided():
    lo, hi = few_rows_interval(np.zeros(20), np.repeat([1.0, 0.0], 10))
    exact = scipy.stats.binomtest(5, 10).proportion_ci(method="exact")
    assert (lo, hi) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("noise", [0.45, 0.8, 2.0], ids=["easy", "middling", "hard"])
def test_the_interval_of_few_rows_holds_the_true_area_as_often_as_it_says(noise):
    true = scipy.stats.norm.cdf(1 / (noise * np.sqrt(2)))
    bounds = [few_rows_interval(*few(12, 12, noise, seed)) for seed in range(800)]
    assert 0.93 <= np.mean([lo <= true <= hi for lo, hi in bounds]) <= 0.995


def test_an_area_of_one_class_has_no_interval():
    assert np.isnan(few_rows_interval(np.arange(5.0), np.ones(5))).all()


@pytest.mark.parametrize(("right", "wrong", "said"), [(12, 12, "Only 12 of 24"), (29, 90, "Only 29 of 119")])
def test_few_rows_of_a_class_are_said(right, wrong, said):
    assert few_rows_caution(right, wrong).startswith(said)
    assert few_rows_caution(wrong, right).startswith(said)


def test_enough_rows_or_a_single_class_need_no_caution():
    assert few_rows_caution(30, 30) == few_rows_caution(24, 0) == ""


def test_a_row_of_weight_w_is_placed_as_w_equal_rows() -> None:
    draw = np.random.default_rng(5)
    right, wrong = draw.integers(0, 6, (2, 9)).astype(float), draw.integers(0, 6, (2, 7)).astype(float)
    weights = draw.integers(1, 5, 9), draw.integers(1, 5, 7)
    weighted = placements(right, wrong, (weights[0].astype(float), weights[1].astype(float)))
    single = placements(np.repeat(right, weights[0], axis=1), np.repeat(wrong, weights[1], axis=1))
    for found, expected, times in zip(weighted, single, weights, strict=True):
        assert np.repeat(found, times, axis=1) == pytest.approx(expected, abs=1e-12)
