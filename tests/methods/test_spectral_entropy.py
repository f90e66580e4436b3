import numpy as np
import pytest
import scipy.stats

from sgpu.methods.base import CellFeatures
from sgpu.methods.spectral_entropy import METHOD, spectral_entropy


def test_identical_answers_give_zero():
    assert spectral_entropy(np.array([20.0] + [0.0] * 19)) == 0.0


def test_orthogonal_answers_give_the_log_of_n():
    assert spectral_entropy(np.ones(20)) == pytest.approx(np.log(20), rel=1e-14)


def test_agrees_with_scipy_on_random_spectra():
    eigenvalues = np.random.default_rng(0).dirichlet(np.full(20, 0.3), size=50) * 20
    expected = scipy.stats.entropy(eigenvalues, axis=1)
    np.testing.assert_allclose(spectral_entropy(eigenvalues), expected, rtol=1e-12)


def test_rounding_around_zero_and_n_does_not_leak():
    assert spectral_entropy(np.array([2.0 + 4e-16, -4e-16])) == 0.0


def test_a_single_answer_has_no_entropy():
    assert spectral_entropy(np.array([1.0])) == 0.0


def test_confidence_falls_with_entropy_and_keeps_missing_rows():
    eigenvalues = np.array([[2.0, 0.0], [1.0, 1.0], [np.nan, np.nan]])
    features = CellFeatures(["a", "b", "c"], [["x", "y"]] * 3, eigenvalues=eigenvalues)
    np.testing.assert_allclose(METHOD.confidence(features), [0.0, -np.log(2), np.nan])
