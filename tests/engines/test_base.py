from __future__ import annotations

from sgpu.engines.base import clean_answer


def test_surrounding_white_space_is_removed() -> None:
    assert clean_answer("  Paris \n") == "Paris"


def test_cut_is_at_the_earliest_stop_string() -> None:
    assert clean_answer("Paris.\nQuestion: b\n", ("Question:", "\n")) == "Paris."


def test_text_without_stop_string_is_whole() -> None:
    assert clean_answer("Paris", ("\n",)) == "Paris"


def test_empty_stop_string_cuts_nothing() -> None:
    assert clean_answer("Paris", ("",)) == "Paris"
