import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from sgpu.methods.base import CellFeatures
from sgpu.methods.cos_eigenscore import METHOD, configure_cos_eigenscore, cos_eigenscore

HIDDEN = np.random.default_rng(0).normal(size=(6, 32)) * np.arange(1, 7)[:, None]


def test_agrees_with_the_cosines_of_scikit_learn():
    eigenvalues = np.linalg.eigvalsh(cosine_similarity(HIDDEN))
    assert cos_eigenscore(HIDDEN) == pytest.approx(np.log(eigenvalues + 1e-3).sum(), rel=1e-12)


def test_two_answers_at_cosine_c():
    c, alpha = 0.3, 1e-3
    hidden = np.array([[1.0, 0.0], [c, np.sqrt(1 - c**2)]])
    assert cos_eigenscore(hidden, alpha) == pytest.approx(np.log((1 + alpha) ** 2 - c**2), rel=1e-13)


@pytest.mark.parametrize("n", [1, 2, 20])
def test_identical_answers_have_the_least_volume(n):
    expected = (n - 1) * np.log(1e-3) + np.log(n + 1e-3)
    assert cos_eigenscore(np.tile(HIDDEN[0], (n, 1))) == pytest.approx(expected, rel=1e-10)


def test_orthogonal_answers_have_the_most():
    assert cos_eigenscore(np.diag([1.0, 2.0, 3.0])) == pytest.approx(3 * np.log(1.001), rel=1e-12)


def test_the_length_of_a_state_does_not_matter():
    lengths = np.array([[1e-3], [1.0], [1e3], [7.0], [2.0], [1e6]])
    assert cos_eigenscore(HIDDEN * lengths) == pytest.approx(cos_eigenscore(HIDDEN), rel=1e-12)


def test_states_are_not_centred():
    assert abs(cos_eigenscore(HIDDEN + 5) - cos_eigenscore(HIDDEN)) > 1


def test_confidence_falls_with_volume_and_rows_without_a_direction_are_missing():
    hidden = np.stack([np.tile(HIDDEN[0], (6, 1)), HIDDEN, HIDDEN, HIDDEN])
    hidden[2, 3], hidden[3, 0, 0] = 0.0, np.nan
    features = CellFeatures(["same", "apart", "zero", "nan"], [["x"] * 6] * 4, middle_hidden=hidden)
    same, apart, *missing = METHOD.confidence(features)
    assert same > apart and np.isnan(missing).all()


def test_a_study_can_choose_alpha_and_the_method_says_so():
    method = configure_cos_eigenscore(alpha=0.5)
    features = CellFeatures(["a"], [["x"] * 6], middle_hidden=HIDDEN[None])
    assert method.confidence(features)[0] == -cos_eigenscore(HIDDEN, 0.5)
    assert method.settings["alpha"] == 0.5
