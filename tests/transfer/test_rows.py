from __future__ import annotations

import numpy as np

from bench.constructed_cells import source_cell
from sgpu.transfer.rows import joined, text_sha256


def test_the_same_words_are_one_question_whatever_their_case_and_spaces() -> None:
    assert text_sha256("Who is  it? ") == text_sha256("who is it?")
    assert text_sha256("who is it?") != text_sha256("who was it?")


def test_the_same_words_about_another_image_are_another_question() -> None:
    assert text_sha256("what colour?", "aa") != text_sha256("what colour?", "bb")
    assert text_sha256("what colour?", "aa") != text_sha256("what colour?")


def test_a_row_without_a_label_or_a_spectrum_is_not_usable() -> None:
    rows = source_cell("a", "d", 10).rows
    rows.label[2] = np.nan
    rows.spectra[5, 3] = np.nan
    assert np.flatnonzero(~rows.usable).tolist() == [2, 5]
    assert np.flatnonzero(~rows.has_spectrum).tolist() == [5]


def test_rows_are_taken_by_number_in_that_order_with_their_keys() -> None:
    rows = source_cell("a", "d", 10).rows
    some = rows.take(np.array([7, 1]))
    assert some.keys["question_id"].to_list() == ["q0007", "q0001"]
    assert (some.spectra == rows.spectra[[7, 1]]).all() and (some.label == rows.label[[7, 1]]).all()


def test_joined_rows_keep_their_cells() -> None:
    both = joined([source_cell("a", "d", 10).rows, source_cell("b", "d", 20).rows])
    assert len(both) == 30
    assert both.keys["model"].to_list() == ["a"] * 10 + ["b"] * 20
