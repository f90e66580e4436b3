"""Semantic nearest-neighbour entropy by its definition, and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sgpu.errors import UsageError
from sgpu.methods.snne import snne


def test_value_is_that_of_the_sums_written_out() -> None:
    s = [[1, 0.2], [0.2, 1]]
    by_hand = -sum(math.log(sum(math.exp(x / 0.5) for x in row)) for row in s) / 2
    assert snne(np.array(s), tau=0.5) == pytest.approx(by_hand)


def test_equal_answers_have_the_lowest_value() -> None:
    assert snne(np.ones((4, 4))) == pytest.approx(-(1 + math.log(4)))
    assert snne(np.eye(4)) > snne(np.ones((4, 4)))


def test_a_temperature_that_is_not_positive_is_refused() -> None:
    with pytest.raises(UsageError, match="tau of method 'snne' is 0"):
        snne(np.eye(2), tau=0)
