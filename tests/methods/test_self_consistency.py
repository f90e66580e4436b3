import math

import numpy as np
import pytest

from sgpu.methods.base import CellFeatures
from sgpu.methods.self_consistency import METHOD, normalise, self_consistency


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Eiffel Tower.", "eiffel tower"),
        ("  New\nYork ", "new york"),
        ("STRASSE", "straße"),
        ("\uff30aris", "Paris"),
        ("an apple, a pear", "apple pear"),
        ("(5)", "5."),
    ],
)
def test_case_punctuation_articles_and_spaces_do_not_tell_answers_apart(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("A", "B"), ("A", ""), ("-5", "5"), ("3.14", "314"), ("theatre", "atre"), ("?", "!"), ("C++", "C")],
)
def test_answers_that_differ_stay_apart(one, other):
    assert normalise(one) != normalise(other)


def test_is_the_share_of_the_most_frequent_answer():
    assert self_consistency(["Paris", "paris.", "Lyon", "The Paris", "Nice"]) == 0.6


def test_a_single_answer_agrees_with_itself():
    assert self_consistency(["Paris"]) == 1.0


def test_silence_is_not_agreement():
    assert self_consistency(["", " ", "\n", "Paris"]) == 0.25


@pytest.mark.parametrize("answers", [[], [""], ["", "  "]])
def test_nothing_said_is_missing_not_zero(answers):
    assert math.isnan(self_consistency(answers))


def test_a_withheld_answer_is_not_counted():
    assert self_consistency(["Paris", None, "Lyon", "Paris", None]) == 2 / 3
    assert math.isnan(self_consistency([None, None]))


def test_method_is_a_confidence():
    features = CellFeatures(["a", "b"], [["x", "x"], ["", ""]])
    np.testing.assert_array_equal(METHOD.confidence(features), [1.0, np.nan])
