"""The largest eigenvalue and the entropy of a spectrum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from sgpu.methods.base import CellFeatures
from sgpu.methods.spectral import LARGEST_EIGENVALUE, SPECTRAL_ENTROPY, largest_eigenvalue, spectral_entropy


def test_identical_answers_give_one_and_orthogonal_answers_one_nth():
    np.testing.assert_array_equal(largest_eigenvalue(np.array([[4.0, 0, 0, 0], [1, 1, 1, 1]])), [1.0, 0.25])


def test_two_answers_at_cosine_c_give_half_of_one_plus_c():
    eigenvalues = np.linalg.eigvalsh([[1, 0.3], [0.3, 1]])
    assert largest_eigenvalue(eigenvalues) == pytest.approx(0.65, rel=1e-14)


def test_a_single_answer_is_fully_consistent():
    assert largest_eigenvalue(np.array([1.0])) == 1.0


def test_method_is_a_confidence_and_keeps_missing_rows():
    eigenvalues = np.array([[1.5, 0.5], [np.nan, np.nan]])
    features = CellFeatures(["a", "b"], [["x", "y"]] * 2, eigenvalues=eigenvalues)
    np.testing.assert_array_equal(LARGEST_EIGENVALUE.confidence(features), [0.75, np.nan])


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
    np.testing.assert_allclose(SPECTRAL_ENTROPY.confidence(features), [0.0, -np.log(2), np.nan])
