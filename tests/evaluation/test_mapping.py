import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration

from sgpu.errors import DataError, UsageError
from sgpu.evaluation.calibration import ece
from sgpu.evaluation.mapping import MAPPINGS, UndefinedMap, fit_mapping

FITTED = ["minmax", "platt", "isotonic"]


def sample(n=20_000, seed=0):
    """Scores whose true probability is a sigmoid of twice the score less one."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    return score, (rng.random(n) < expit(2 * score - 1)).astype(float)


def test_minmax_is_linear_over_the_validation_range_and_clipped_beyond():
    apply = fit_mapping("minmax", np.array([-3.0, 1.0, -1.0]), np.array([0.0, 1, 1]))
    np.testing.assert_allclose(apply(np.array([-3.0, -2, 1, -9, 9])), [0, 0.25, 1, 0, 1])


def test_platt_recovers_the_sigmoid_that_made_the_labels():
    apply = fit_mapping("platt", *sample())
    grid = np.linspace(-2, 2, 9)
    np.testing.assert_allclose(apply(grid), expit(2 * grid - 1), atol=0.02)


def test_platt_agrees_with_scikit_learn():
    score, label = sample(300)
    theirs = _SigmoidCalibration().fit(score, label).predict(score)
    np.testing.assert_allclose(fit_mapping("platt", score, label)(score), theirs, atol=1e-4)


def test_platt_stays_finite_where_a_score_separates_the_classes():
    p = fit_mapping("platt", np.arange(10.0), np.repeat([0.0, 1.0], 5))(np.array([0.0, 9.0]))
    assert 0 < p[0] < 0.2 < 0.8 < p[1] < 1


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_platt_does_not_depend_on_the_unit_of_the_score(scale):
    score, label = sample(500)
    p = fit_mapping("platt", score, label)(score)
    np.testing.assert_allclose(
        fit_mapping("platt", score * scale + scale, label)(score * scale + scale), p, atol=1e-6
    )


def test_isotonic_pools_the_adjacent_violators():
    apply = fit_mapping("isotonic", np.array([1.0, 2, 3, 4]), np.array([0.0, 1, 0, 1]))
    np.testing.assert_allclose(apply(np.array([0.0, 1, 2, 3, 4, 5])), [0, 0, 0.5, 0.5, 1, 1])


@pytest.mark.parametrize("name", ["platt", "isotonic"])
def test_calibrates_fresh_rows(name):
    score, label = sample(seed=1)
    fresh, fresh_label = sample(seed=2)
    assert ece(fit_mapping(name, score, label)(fresh), fresh_label) < 0.02


def test_none_takes_the_score_as_it_is_and_clips():
    apply = fit_mapping("none", np.array([0.2, 0.2]), np.array([0.0, 1]))
    np.testing.assert_array_equal(apply(np.array([-1.0, 0.3, 2])), [0, 0.3, 1])


@pytest.mark.parametrize("name", FITTED)
def test_a_constant_score_maps_to_the_base_rate(name):
    apply = fit_mapping(name, np.full(4, -2.0), np.array([1.0, 1, 1, 0]))
    np.testing.assert_array_equal(apply(np.array([-2.0, 5.0])), [0.75, 0.75])


@pytest.mark.parametrize("name", FITTED)
def test_infinite_scores_count_as_the_most_extreme_seen(name):
    score, label = sample(200)
    score[:2], label[:2] = -np.inf, 0
    apply = fit_mapping(name, score, label)
    p = apply(np.array([-np.inf, score[2:].min(), score[2:].max(), np.inf]))
    assert p[0] == p[1] < p[2] == p[3]


@pytest.mark.parametrize("name", FITTED)
def test_every_map_stays_in_the_unit_interval(name):
    p = fit_mapping(name, *sample(200))(np.linspace(-1e9, 1e9, 101))
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("score", [[], [-np.inf, -np.inf]])
def test_nothing_to_fit_on_is_refused(name, score):
    with pytest.raises(UndefinedMap, match="no validation row"):
        fit_mapping(name, np.array(score), np.ones(len(score)))


@pytest.mark.parametrize("name", ["platt", "isotonic"])
@pytest.mark.parametrize(("right", "said"), [(1.0, "all 5 are right"), (0.0, "all 5 are wrong")])
def test_maps_that_learn_from_labels_need_both_classes(name, right, said):
    with pytest.raises(UndefinedMap, match=f"mapping '{name}' needs right and wrong .* {said}"):
        fit_mapping(name, np.arange(5.0), np.full(5, right))


def test_minmax_does_not_look_at_labels():
    of = [fit_mapping("minmax", np.arange(5.0), np.full(5, right))(np.arange(5.0)) for right in (0.0, 1.0)]
    np.testing.assert_array_equal(of[0], np.linspace(0, 1, 5))
    np.testing.assert_array_equal(of[0], of[1])


@pytest.mark.parametrize("name", [*FITTED, "none"])
def test_a_missing_score_stays_missing(name):
    fit_on = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0.0, 1, 0, 1])
    apply = fit_mapping(name, *fit_on)
    p = apply(np.array([np.nan, 0.5, np.nan]))
    np.testing.assert_array_equal(np.isnan(p), [True, False, True])
    assert p[1] == apply(np.array([0.5]))[0]


def test_a_missing_score_stays_missing_where_all_others_are_alike():
    apply = fit_mapping("platt", np.zeros(2), np.array([0.0, 1]))
    np.testing.assert_array_equal(apply(np.array([np.nan, 7.0])), [np.nan, 0.5])


@pytest.mark.parametrize("name", FITTED)
def test_a_missing_score_is_not_fitted_on(name):
    with pytest.raises(DataError, match="row 1 is NaN"):
        fit_mapping(name, np.array([0.1, np.nan]), np.array([0.0, 1]))


def test_isotonic_agrees_with_the_means_of_its_blocks():
    # The fit at a row is the largest, over where a block may start, of the smallest mean of what follows.
    score, label = sample(60)
    order = np.argsort(score)
    ranked, rows = label[order], np.arange(60)
    means = [[ranked[a : b + 1].mean() for b in rows[a:]] for a in rows]
    fitted = [max(min(means[a][i - a :]) for a in range(i + 1)) for i in rows]
    np.testing.assert_allclose(fit_mapping("isotonic", score, label)(score[order]), fitted, atol=1e-12)


def test_an_unknown_mapping_names_what_exists():
    with pytest.raises(UsageError, match=r"'plat'.*Did you mean 'platt'.*isotonic, minmax, none, platt"):
        fit_mapping("plat", np.zeros(2), np.ones(2))
    assert set(MAPPINGS) == {*FITTED, "none"}
