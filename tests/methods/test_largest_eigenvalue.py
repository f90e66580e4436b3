import numpy as np
import pytest

from sgpu.methods.base import CellFeatures
from sgpu.methods.largest_eigenvalue import METHOD, largest_eigenvalue


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
    np.testing.assert_array_equal(METHOD.confidence(features), [0.75, np.nan])
