from __future__ import annotations

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.evaluation.embedding_error import embedding_error

CLUSTERS = [0] * 10 + [1] * 5


def test_ideal_embeddings_give_the_counts_and_no_error() -> None:
    found = embedding_error(3 * np.eye(4)[CLUSTERS], CLUSTERS)
    assert found == pytest.approx((10, 5, 0, 0), abs=1e-12)


def test_similar_meanings_move_weight_to_the_first_eigenvalue_as_in_closed_form() -> None:
    # Two unit vectors at cosine c, ten times and five times: the Gram matrix has rank two.
    c = 0.4
    vectors = np.array([[1, 0], [c, np.sqrt(1 - c**2)]])[CLUSTERS]
    found = embedding_error(vectors, CLUSTERS)
    root = np.sqrt((10 - 5) ** 2 + 4 * 10 * 5 * c**2)
    assert found.lambda_1 == pytest.approx((15 + root) / 2)
    assert found.lambda_2 == pytest.approx((15 - root) / 2)
    assert found.epsilon == pytest.approx(c)
    assert found.mean_square == pytest.approx(2 * 10 * 5 * c**2 / 15**2)


@pytest.mark.parametrize(
    ("vectors", "clusters"), [(np.ones((1, 3)), [0]), (np.ones((3, 2)), [0, 1]), (np.zeros((2, 2)), [0, 1])]
)
def test_what_has_no_error_is_refused(vectors: np.ndarray, clusters: list[int]) -> None:
    with pytest.raises(DataError):
        embedding_error(vectors, clusters)
