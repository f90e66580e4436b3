"""Training rows for all answers and for fewer: of one cell, and pooled."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.gp.representation import size_free
from sgpu.stages.fit_rows import Training, pooled

RNG = np.random.default_rng(0)


def training(questions: int, sizes: tuple[int, ...] = (2, 5, 10)) -> Training:
    by_size = {n: np.sort(RNG.dirichlet(np.ones(n), questions) * n)[:, ::-1] for n in sizes}
    return Training(by_size, max(sizes), RNG.integers(0, 2, questions))


def test_own_rows_are_those_of_all_answers() -> None:
    one = training(7)
    assert np.array_equal(one.own().x, one.by_size[10])
    assert one.own().weights is None and one.own().cells is None


def test_heads_leave_out_a_question_whose_smaller_spectrum_is_missing() -> None:
    one = training(7)
    one.by_size[5][2] = np.nan
    heads = one.others("heads", 0)
    assert list(heads) == ["heads/2", "heads/5"]
    assert len(heads["heads/5"]) == 6 and len(heads["heads/2"]) == 7
    assert np.array_equal(heads["heads/5"].y, np.delete(one.label, 2))


def test_rows_of_any_size_hold_every_size_and_keep_the_label() -> None:
    one = training(7)
    (rows,) = one.others("size_free", 0).values()
    assert np.array_equal(rows.x, np.concatenate([size_free(one.by_size[n]) for n in (2, 5, 10)]))
    assert np.array_equal(rows.y, np.tile(one.label, 3))
    assert rows.weights is None


@pytest.mark.parametrize("kind", ["size_free", "heads"])
def test_without_smaller_spectra_there_is_nothing_to_fit(kind: str) -> None:
    assert training(7, (10,)).others(kind, 0) == {}


def test_a_pool_by_cell_gives_each_cell_the_same_weight_at_every_size() -> None:
    pool = pooled([training(30), training(10)], "by_cell")
    own = pool.own()
    assert own.weights is not None and own.cells is not None
    assert np.bincount(own.cells, own.weights) == pytest.approx([20, 20])
    (rows,) = pool.others("size_free", 0).values()
    assert rows.weights is not None and rows.cells is not None
    # A group for each size of each cell, of equal weight.
    groups = np.unique(rows.cells, return_inverse=True)[1]
    assert np.bincount(groups, rows.weights) == pytest.approx(np.full(6, 20))


def test_a_pool_has_the_sizes_that_all_cells_have() -> None:
    pool = pooled([training(30), training(10, (5, 10))], "by_row")
    assert sorted(pool.by_size) == [5, 10]
    assert pool.weights is None
