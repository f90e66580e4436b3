import numpy as np
import pytest

from sgpu.methods.nli_relation import (
    CONTRADICTS,
    ENTAILS,
    NEUTRAL,
    UNKNOWN,
    missing_answers,
    nli_relation,
)


@pytest.mark.parametrize(
    ("entail", "contradict", "relation"),
    [
        (1.0, 0.0, ENTAILS),
        (0.0, 1.0, CONTRADICTS),
        (0.0, 0.0, NEUTRAL),
        (0.4, 0.35, ENTAILS),  # likeliest, though below one half
        (0.25, 0.4, CONTRADICTS),
        (0.5, 0.0, NEUTRAL),  # a tie goes to the class that binds less
        (0.5, 0.5, CONTRADICTS),
        (0.25, 0.25, NEUTRAL),
        (np.nan, 0.0, UNKNOWN),
        (1.0, np.nan, UNKNOWN),
    ],
)
def test_is_the_likeliest_class(entail, contradict, relation):
    assert nli_relation(np.array(entail), np.array(contradict)) == relation


def test_a_missing_answer_is_told_by_its_diagonal_entry():
    entail = np.zeros((2, 3, 3))
    entail[1, 2, :] = entail[1, :, 2] = np.nan
    np.testing.assert_array_equal(missing_answers(entail), [[False] * 3, [False, False, True]])
