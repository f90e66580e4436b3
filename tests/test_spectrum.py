import numpy as np
import pytest

from sgpu.spectrum import gram, spectrum


def unit_rows(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(dtype)


def equicorrelated(n: int, rho: float) -> np.ndarray:
    """n unit rows whose inner products are all rho: a shared direction and one of its own each."""
    return np.hstack([np.full((n, 1), np.sqrt(rho)), np.sqrt(1 - rho) * np.eye(n)])


def test_identical_answers_have_one_eigenvalue_n() -> None:
    rows = np.repeat(unit_rows(1, 384), 20, axis=0)
    values = spectrum(rows)
    assert values[0] == pytest.approx(20, abs=1e-12)
    assert np.all(values[1:] < 1e-13)  # float32 eigenvalues would be off by 1e-6 here


def test_orthogonal_answers_have_eigenvalues_one() -> None:
    assert spectrum(np.eye(6, 384)) == pytest.approx(np.ones(6), abs=1e-14)


def test_one_answer_has_eigenvalue_one() -> None:
    assert spectrum(unit_rows(1, 8)).tolist() == [1.0]


def test_two_orthogonal_clusters_give_their_sizes() -> None:
    rows = np.eye(2, 10)[[0, 1, 0, 0, 1]]
    assert spectrum(rows) == pytest.approx([3, 2, 0, 0, 0], abs=1e-14)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.93])
def test_equicorrelated_answers_follow_the_closed_form(rho: float) -> None:
    expected = [1 + 19 * rho] + [1 - rho] * 19
    assert spectrum(equicorrelated(20, rho)) == pytest.approx(expected, abs=1e-13)
    single = spectrum(equicorrelated(20, rho).astype(np.float32))
    assert single == pytest.approx(expected, abs=5e-6)


def test_eigenvalues_are_squared_singular_values() -> None:
    rows = unit_rows(20, 384, dtype=np.float64)
    assert spectrum(rows) == pytest.approx(np.linalg.svd(rows, compute_uv=False) ** 2, abs=1e-12)


def test_order_of_the_answers_does_not_matter() -> None:
    rows = unit_rows(20, 384)
    shuffled = rows[np.random.default_rng(1).permutation(20)]
    assert spectrum(shuffled) == pytest.approx(spectrum(rows), abs=1e-5)


def test_batch_equals_a_loop_over_sets() -> None:
    rows = unit_rows(3, 4, 20, 64)
    loop = [[np.linalg.eigvalsh(e.astype(np.float64) @ e.T)[::-1] for e in part] for part in rows]
    values = spectrum(rows)
    assert values.shape == (3, 4, 20)
    assert values == pytest.approx(np.array(loop), abs=5e-6)


def test_eigenvalues_are_descending_not_negative_and_sum_to_n() -> None:
    rows = unit_rows(50, 20, 384)
    rows[:, 5:] = rows[:, :1]  # many zero eigenvalues
    values = spectrum(rows)
    assert values.dtype == np.float64
    assert np.all(np.diff(values, axis=-1) <= 0)
    assert np.all(values >= 0)
    assert values.sum(axis=-1) == pytest.approx(np.full(50, 20.0), abs=1e-13)


def test_more_answers_than_dimensions_leave_zeros() -> None:
    assert spectrum(unit_rows(7, 3))[3:] == pytest.approx(np.zeros(4), abs=1e-6)


def test_no_sets_give_no_rows() -> None:
    assert spectrum(np.empty((0, 20, 384), dtype=np.float32)).shape == (0, 20)


def test_gram_of_float64_rows_keeps_float64() -> None:
    rows = unit_rows(5, 384, dtype=np.float64)
    assert gram(rows) == pytest.approx(np.array([[a @ b for b in rows] for a in rows]), abs=1e-15)


def test_row_that_is_not_unit_is_named_with_its_norm() -> None:
    rows = unit_rows(3, 20, 16)
    rows[1, 4] *= 2
    with pytest.raises(ValueError, match=r"row 4 of set \(1,\) .* norm 2,"):
        spectrum(rows)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_value_that_is_not_finite_is_refused(value: float) -> None:
    rows = unit_rows(20, 16)
    rows[2, 3] = value
    with pytest.raises(ValueError, match="row 2 of the embeddings"):
        spectrum(rows)


@pytest.mark.parametrize("shape", [(16,), (0, 16), (4, 0)])
def test_shape_without_rows_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(\.\.\., N, D\)"):
        gram(np.ones(shape))
