"""Spectra of any size as rows of one length: against what shares and counts are by definition."""

from __future__ import annotations

import numpy as np
import pytest

from bench.constructed import constructed_sets
from sgpu.errors import DataError
from sgpu.gp.representation import COLUMNS, SCALE, size_free, sized_rows


def test_a_row_holds_the_shares_of_the_whole() -> None:
    row = size_free(np.array([[1.0, 3.0, 0.0, 0.0]]))[0]
    assert row[1:3] / SCALE == pytest.approx([0.75, 0.25])
    assert row[3:] == pytest.approx(0)


@pytest.mark.parametrize("n", [2, 5, 20, 30, 50])
def test_rows_fall_and_hold_no_more_than_the_whole(n: int) -> None:
    spectra = np.sort(np.random.default_rng(n).dirichlet(np.ones(n), 40) * n, axis=1)[:, ::-1]
    rows = size_free(spectra)
    assert rows.shape == (40, COLUMNS)
    # The classifier sorts its rows, so a rise would exchange columns.
    assert (np.diff(rows, axis=1) <= 0).all()
    assert (rows >= 0).all()
    held = rows[:, 1:].sum(1) / SCALE
    assert held == pytest.approx(spectra[:, :20].sum(1) / n)


def test_sets_of_two_sizes_that_agree_are_apart_by_the_difference_of_one_over_n() -> None:
    small, large = size_free(np.array([[4.0, 0, 0, 0]])), size_free(np.array([[20.0, *[0] * 19]]))
    assert large - small == pytest.approx(np.eye(1, COLUMNS) * SCALE * (1 / 4 - 1 / 20))


def test_more_answers_bring_the_shares_to_those_of_the_distribution() -> None:
    # Three orthogonal meanings of chances 0.5, 0.3 and 0.2: shares are the counts, which are multinomial.
    chances = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(0)
    errors = []
    for n in (10, 1000):
        counts = np.sort(rng.multinomial(n, chances, 200), axis=1)[:, ::-1]
        spectra = np.zeros((200, n))
        spectra[:, :3] = counts
        errors.append(np.abs(size_free(spectra)[:, 1:4] / SCALE - chances).mean())
    assert errors[1] < 0.02 < errors[0]


def test_one_answer_is_refused() -> None:
    with pytest.raises(DataError, match="1 answers"):
        size_free(np.ones((3, 1)))


def test_every_question_is_seen_with_all_sizes_that_it_has() -> None:
    sets = constructed_sets(30, answers=8, seed=0)
    by_size = {n: sets.spectra(n) for n in (2, 5, 8)}
    by_size[5][3] = np.nan
    rows = sized_rows(by_size, seed=0, most=1000)
    assert len(rows.x) == 30 * 3 - 1
    fifth = (rows.question == 3).nonzero()[0]
    assert rows.size[fifth].tolist() == [2, 8]
    assert np.array_equal(rows.x[fifth[1]], size_free(by_size[8][3:4])[0])


def test_above_the_most_rows_questions_take_turns_with_the_sizes() -> None:
    spectra = np.ones((60, 1))
    by_size = {n: np.repeat(spectra, n, axis=1) for n in (2, 3, 5, 8)}
    rows = sized_rows(by_size, seed=0, most=120)
    assert np.bincount(rows.question).tolist() == [2] * 60
    assert [int((rows.size == n).sum()) for n in (2, 3, 5, 8)] == [30, 30, 30, 30]
