"""The degree matrix by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.methods.degree_matrix import degree_matrix


def test_value_is_that_of_the_trace_of_n_minus_the_degrees() -> None:
    w = np.array([[1, 0.2, 0.5], [0.2, 1, 0.3], [0.5, 0.3, 1]])
    degrees = np.diag(w.sum(axis=1))
    assert degree_matrix(w) == pytest.approx(np.trace(3 * np.eye(3) - degrees) / 9)


def test_a_set_with_a_missing_similarity_is_missing() -> None:
    w = np.ones((2, 2, 2))
    w[1, 0, 1] = np.nan
    np.testing.assert_array_equal(degree_matrix(w), [0, np.nan])
