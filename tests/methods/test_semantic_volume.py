import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.methods.semantic_volume import mask_nonfinite_sets, semantic_volume, unit_vectors


def test_orthogonal_vectors_span_the_product_of_their_squared_lengths():
    vectors = np.diag([2.0, 3.0, 5.0])
    assert semantic_volume(vectors, 1e-12) == pytest.approx(np.log(4 * 9 * 25), abs=1e-11)


def test_agrees_with_the_singular_values_of_the_vectors():
    vectors = np.random.default_rng(0).normal(size=(7, 20, 64))
    singular = np.linalg.svd(vectors, compute_uv=False)
    expected = np.log(singular**2 + 1e-3).sum(axis=-1)
    np.testing.assert_allclose(semantic_volume(vectors, 1e-3), expected, rtol=1e-12)


def test_more_answers_than_features_are_singular_but_have_a_volume():
    vectors = np.random.default_rng(1).normal(size=(20, 3))
    singular = np.linalg.svd(vectors, compute_uv=False)
    expected = np.log(singular**2 + 1e-3).sum() + 17 * np.log(1e-3)
    assert semantic_volume(vectors, 1e-3) == pytest.approx(expected, rel=1e-11)


def test_the_determinant_itself_may_underflow():
    assert semantic_volume(np.zeros((200, 2)), 1e-3) == pytest.approx(200 * np.log(1e-3), rel=1e-14)


def test_a_missing_set_is_nan_and_leaves_the_others_alone():
    vectors = np.random.default_rng(2).normal(size=(3, 4, 5))
    whole = semantic_volume(vectors, 1e-3)
    vectors[1, 2, 3] = np.nan
    np.testing.assert_array_equal(semantic_volume(vectors, 1e-3), [whole[0], np.nan, whole[2]])


def test_vectors_too_long_for_alpha_give_nan_not_the_volume_of_rounding():
    vectors = np.random.default_rng(3).normal(size=(4, 8)) * [[1e4], [1e4], [1e4], [1e4]]
    assert np.isfinite(semantic_volume(vectors, 1e-3))
    assert np.isnan(semantic_volume(vectors * 1e4, 1e-3))


@pytest.mark.parametrize("alpha", [0.0, -1e-3, np.nan])
def test_an_alpha_that_is_not_positive_is_refused(alpha):
    with pytest.raises(UsageError, match="alpha"):
        semantic_volume(np.eye(2), alpha)


def test_one_infinite_value_makes_its_whole_set_missing():
    hidden = np.ones((2, 2, 3), dtype=np.float16)
    hidden[1, 0, 0] = np.inf
    states = mask_nonfinite_sets(hidden)
    assert states.dtype == np.float64
    assert not np.isnan(states[0]).any() and np.isnan(states[1]).all()


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0), (2, 0, 3)])
def test_states_of_another_shape_are_refused(shape):
    with pytest.raises(DataError, match="shape"):
        mask_nonfinite_sets(np.zeros(shape))


def test_a_state_of_zeros_has_no_direction():
    np.testing.assert_array_equal(
        unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [np.nan, np.nan]]
    )
