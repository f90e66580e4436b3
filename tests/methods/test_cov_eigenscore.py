import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.methods.base import CellFeatures
from sgpu.methods.cov_eigenscore import METHOD, configure_cov_eigenscore, cov_eigenscore

HIDDEN = np.random.default_rng(0).normal(size=(5, 64))


def with_centring_matrix(hidden, alpha):
    """The paper's formula as it is printed, with phi = columns and J_d written out."""
    phi = hidden.T
    d = len(phi)
    centring = np.eye(d) - np.ones((d, d)) / d
    sigma = phi.T @ centring @ phi
    return np.log(np.linalg.eigvalsh(sigma + alpha * np.eye(sigma.shape[0]))).sum()


def test_equals_the_paper_formula_written_out():
    assert cov_eigenscore(HIDDEN) == pytest.approx(with_centring_matrix(HIDDEN, 1e-3), rel=1e-13)


def test_covariance_scaling_is_the_number_of_inside_up_to_n_and_the_base_of_the_logarithm():
    published = np.mean(np.log10(np.linalg.svd(np.cov(HIDDEN) + 1e-3 * np.eye(5), compute_uv=False)))
    assert cov_eigenscore(HIDDEN, scaling="covariance") / (5 * np.log(10)) == pytest.approx(
        published, rel=1e-12
    )


def test_the_two_scalings_are_one_under_alphas_a_factor_of_d_minus_1_apart():
    shifted = cov_eigenscore(HIDDEN, alpha=63e-3) - 5 * np.log(63)
    assert cov_eigenscore(HIDDEN, alpha=1e-3, scaling="covariance") == pytest.approx(shifted, rel=1e-12)


def test_the_two_scalings_can_rank_two_sets_differently():
    one, other = np.linalg.qr(HIDDEN.T - HIDDEN.T.mean(axis=0))[0].T[:2]  # orthonormal, of mean 0
    long_and_equal, short_and_apart = np.array([[one, one], [one, other]]) * [[[np.sqrt(50)]], [[1.0]]]
    assert cov_eigenscore(long_and_equal) < cov_eigenscore(short_and_apart)
    assert cov_eigenscore(long_and_equal, scaling="covariance") > cov_eigenscore(
        short_and_apart, scaling="covariance"
    )


def test_a_constant_added_to_a_state_changes_nothing():
    shifted = HIDDEN + np.array([[3.0], [0.0], [-7.0], [1.0], [100.0]])
    assert cov_eigenscore(shifted) == pytest.approx(cov_eigenscore(HIDDEN), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_identical_answers_do_not_cancel(n):
    state = HIDDEN[0]
    scatter = np.sum((state - state.mean()) ** 2)
    expected = (n - 1) * np.log(1e-3) + np.log(n * scatter + 1e-3)
    assert cov_eigenscore(np.tile(state, (n, 1))) == pytest.approx(expected, rel=1e-10)


def test_float16_states_are_not_multiplied_in_float16():
    large = (HIDDEN * 300).astype(np.float16)
    assert cov_eigenscore(large) == cov_eigenscore(large.astype(np.float64))
    assert np.isfinite(cov_eigenscore(large))


def test_an_unknown_scaling_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="scatter"):
        cov_eigenscore(HIDDEN, scaling="scater")


def test_one_feature_has_no_covariance():
    with pytest.raises(DataError, match="1 feature"):
        cov_eigenscore(np.ones((3, 1)), scaling="covariance")


def test_confidence_falls_with_volume_and_a_missing_state_makes_the_row_missing():
    hidden = np.stack([np.tile(HIDDEN[0], (5, 1)), HIDDEN, HIDDEN]).astype(np.float16)
    hidden[2, 3] = np.nan
    features = CellFeatures(["same", "apart", "missing"], [["x"] * 5] * 3, middle_hidden=hidden)
    same, apart, missing = METHOD.confidence(features)
    assert same > apart and np.isnan(missing)


def test_a_study_can_choose_the_other_scaling_and_the_method_says_so():
    method = configure_cov_eigenscore(scaling="covariance", alpha=0.01)
    features = CellFeatures(["a"], [["x"] * 5], middle_hidden=HIDDEN[None])
    assert method.confidence(features)[0] == -cov_eigenscore(HIDDEN, 0.01, "covariance")
    assert method.settings["scaling"] == "covariance" and method.settings["alpha"] == 0.01
