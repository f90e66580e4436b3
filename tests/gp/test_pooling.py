"""Weights of pooled rows and the rows of a search: against counts and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.gp import GPClassifier
from sgpu.gp.pooling import checked_weights, draw_rows, effective_rows, row_weights, search_rows

# 700, 200 and 100 rows of three cells.
CELLS = np.repeat([4, 1, 9], [700, 200, 100])


def test_by_cell_every_cell_has_the_same_weight_and_the_sum_is_the_number_of_rows() -> None:
    weights = row_weights(CELLS, "by_cell")
    assert weights is not None
    totals = [weights[cell == CELLS].sum() for cell in (4, 1, 9)]
    assert totals == pytest.approx([1000 / 3] * 3)


def test_by_row_no_row_is_weighted() -> None:
    assert row_weights(CELLS, "by_row") is None


def test_another_way_to_pool_is_refused() -> None:
    with pytest.raises(UsageError, match="by_cell"):
        row_weights(CELLS, "by_model")


def test_equal_weights_are_as_many_rows_as_there_are_and_one_alone_is_one() -> None:
    assert effective_rows(np.full(50, 0.3)) == pytest.approx(50)
    assert effective_rows(np.array([1.0, 1e-9, 1e-9])) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0, 0.0], "weight 0.0 in row 1"), ([1.0, np.nan], "weight nan in row 1"), ([1.0], "shape")],
)
def test_weights_that_cannot_be_used_are_named(weights: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        checked_weights(weights, 2)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [("by_row", [210, 60, 30]), ("by_cell", [100, 100, 100])],
)
def test_a_search_sees_every_cell_by_its_weight(pool: str, expected: list[int]) -> None:
    chosen, weights = search_rows(1000, 300, 0, row_weights(CELLS, pool), CELLS)
    assert [int((CELLS[chosen] == cell).sum()) for cell in (4, 1, 9)] == expected
    assert weights == pytest.approx(np.ones(300))


def test_a_cell_that_is_too_small_for_its_part_keeps_its_weight() -> None:
    chosen, weights = search_rows(1000, 600, 0, row_weights(CELLS, "by_cell"), CELLS)
    assert weights is not None
    assert [int((CELLS[chosen] == cell).sum()) for cell in (4, 1, 9)] == [300, 200, 100]
    totals = [weights[CELLS[chosen] == cell].sum() for cell in (4, 1, 9)]
    assert totals == pytest.approx([200, 200, 200])


def test_the_smallest_cell_is_not_lost() -> None:
    cells = np.repeat([0, 1], [9999, 1])
    chosen, _ = search_rows(10_000, 100, 0, None, cells)
    assert 9999 in chosen and len(chosen) in (100, 101)


def test_rows_of_a_search_are_drawn_by_the_seed() -> None:
    first, again, other = (search_rows(1000, 300, seed, None, CELLS).rows for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first)) == 300


def test_a_small_cell_counts_as_much_as_a_large_one_when_cells_weigh_alike() -> None:
    # Where all answers agree the large cell is right and the small one wrong, and the other way round.
    spectra = np.array([[4.0, 0, 0, 0], [1.0, 1, 1, 1]]).repeat(120, axis=0)
    cells = np.tile(np.repeat([0, 1], [100, 20]), 2)
    label = (cells == 0) == np.repeat([True, False], 120)
    by_row, by_cell = (
        GPClassifier().fit(spectra, label, row_weights(cells, pool), cells) for pool in ("by_row", "by_cell")
    )
    agree = spectra[:1]
    assert by_row.predict(agree).probability[0] == pytest.approx(100 / 120, abs=0.03)
    assert by_cell.predict(agree).probability[0] == pytest.approx(0.5, abs=0.01)
    assert by_row.fit_report.effective_rows is None
    # 240 rows of weights 0.6 and 3: (sum w)^2 / sum w^2 = 240^2 / (200 * 0.36 + 40 * 9).
    assert by_cell.fit_report.effective_rows == pytest.approx(240**2 / 432)


def test_cells_that_do_not_fit_the_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"cells have shape \(3,\)"):
        GPClassifier().fit(np.eye(4), [0, 1, 0, 1], cells=np.zeros(3))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_rows_are_drawn_in_proportion_to_weights_of_any_size(scale: float) -> None:
    drawn, weights = draw_rows(1000, 400, 0, np.repeat([1.0, 3.0], 500) * scale)
    assert weights is None and len(drawn) == 400
    assert (drawn >= 500).mean() == pytest.approx(0.75, abs=0.06)
