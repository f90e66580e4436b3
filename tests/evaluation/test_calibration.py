import numpy as np
import pytest
import sklearn.calibration
import sklearn.metrics

from sgpu.errors import UsageError
from sgpu.evaluation.calibration import BINNINGS, brier, ece, log_loss, reliability_curve


def sample(n=1000, decimals=12, seed=0):
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(2, 1, n), decimals)
    return p, (rng.random(n) < p**2).astype(float)


def ece_by_definition(p, y, upper):
    """Weighted gaps over bins (lower, upper], the first with its lower edge."""
    total, lower = 0.0, -np.inf
    for edge in upper:
        inside = (p > lower) & (p <= edge)
        if inside.any():
            total += inside.mean() * abs(p[inside].mean() - y[inside].mean())
        lower = edge
    return total


def test_hand_computed_two_bins():
    # (0, .5]: mean .3, one of two right; (.5, 1]: mean .9, one of two right.
    assert ece(np.array([0.1, 0.5, 0.8, 1.0]), np.array([1.0, 0, 1, 0]), bins=2) == pytest.approx(0.3)


@pytest.mark.parametrize("bins", [1, 10, 15, 20])
@pytest.mark.parametrize("decimals", [1, 12])
def test_equal_width_agrees_with_the_definition(bins, decimals):
    p, y = sample(decimals=decimals)
    expected = ece_by_definition(p, y, np.linspace(0, 1, bins + 1)[1:])
    assert ece(p, y, bins) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("decimals", [1, 2, 12])
@pytest.mark.parametrize("n", [7, 1000])
def test_equal_mass_agrees_with_the_definition(bins, decimals, n):
    p, y = sample(n, decimals)
    # Rank of the last row of each bin, in whole numbers.
    ranks = [-(-b * n // bins) for b in range(1, bins + 1)]
    expected = ece_by_definition(p, y, np.unique(np.sort(p)[np.array(ranks) - 1]))
    assert ece(p, y, bins, "mass") == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("bins", [10, 15, 20])
@pytest.mark.parametrize("decimals", [1, 2, 12])
def test_equal_width_agrees_with_the_bins_of_scikit_learn(bins, decimals):
    p, y = sample(decimals=decimals)
    right, mean = sklearn.calibration.calibration_curve(y, p, n_bins=bins)
    rows = np.bincount(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p), minlength=bins)
    assert ece(p, y, bins) == pytest.approx((np.abs(right - mean) * rows[rows > 0]).sum() / len(p), abs=1e-14)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("decimals", [1, 2, 12])
def test_several_numbers_of_bins_at_once_are_those_alone(binning, decimals):
    # 0.3 and 3 * 0.1 are different floats: edges of different numbers of bins that nearly coincide.
    p, y = sample(decimals=decimals)
    p[:3] = [0.3, 3 * 0.1, 0.6]
    everyone, counts = np.ones(len(p), dtype=bool), np.ones((len(p), 1))
    gaps = BINNINGS[binning].of(p, y, [10, 15, 20, 7], everyone).gaps(counts)
    alone = [ece(p, y, bins, binning) for bins in (10, 15, 20, 7)]
    np.testing.assert_allclose([gap[0] / len(p) for gap in gaps], alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bins", [10, 15, 20])
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_one_probability_for_all_has_the_error_of_its_mean(bins, binning):
    y = np.array([1.0] * 7 + [0.0] * 4)
    assert ece(np.full(11, 0.25), y, bins, binning) == pytest.approx(7 / 11 - 0.25, abs=1e-15)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_no_rows_have_no_error(binning):
    assert np.isnan(ece(np.empty(0), np.empty(0), 15, binning))


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_zero_and_one_are_inside_the_bins(binning):
    assert ece(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 15, binning) == 1.0
    assert ece(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 15, binning) == 0.0


def test_a_perfectly_calibrated_forecast_stays_near_its_noise_floor():
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    assert ece(p, (rng.random(200_000) < p).astype(float)) < 0.005


def test_is_on_probability_of_right_not_on_the_larger_class():
    # Gaps: |.3 - .5| and |.7 - .9|. On max(p, 1 - p) all rows would be at .7, and .7 of them as predicted.
    p, y = np.repeat([0.3, 0.7], 10), np.repeat([1.0, 0, 1, 0], [5, 5, 9, 1])
    assert ece(p, y) == pytest.approx(0.2)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_reliability_curve_sums_to_the_error(binning):
    p, y = sample(decimals=2)
    curve = reliability_curve(p, y, 15, binning)
    gaps = np.abs(curve.probability - curve.accuracy) * curve.n_rows / len(p)
    assert gaps.sum() == pytest.approx(ece(p, y, 15, binning), abs=1e-14)
    assert curve.n_rows.sum() == len(p)
    assert (curve.probability <= curve.upper).all()


def test_reliability_curve_leaves_empty_bins_out():
    curve = reliability_curve(np.array([0.05, 0.95]), np.array([0.0, 1.0]), bins=10)
    np.testing.assert_allclose(curve.upper, [0.1, 1.0])
    assert len(reliability_curve(np.empty(0), np.empty(0), binning="mass").n_rows) == 0


def test_brier_agrees_with_scikit_learn():
    p, y = sample()
    assert brier(p, y) == pytest.approx(sklearn.metrics.brier_score_loss(y, p), abs=1e-14)


def test_log_loss_agrees_with_scikit_learn_up_to_certainty():
    p, y = sample()
    p[:4], y[:4] = [0, 0, 1, 1], [0, 1, 0, 1]
    assert log_loss(p, y) == pytest.approx(sklearn.metrics.log_loss(y, p), abs=1e-12)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_no_bins_are_refused(binning):
    with pytest.raises(UsageError, match="bins is 0"):
        ece(np.array([0.5]), np.array([1.0]), 0, binning)
