"""What the tests of spectra may spend, however many routes there are."""

from __future__ import annotations

import pytest

from sgpu.scoring.watch import Thresholds
from sgpu.scoring.watch.comparisons import (
    LEAST_ROWS,
    MMD,
    MOST_PERMUTATIONS,
    MOST_WORK,
    PSI,
    Comparison,
    effort_for,
)
from sgpu.scoring.watch.difference import Difference
from sgpu.scoring.watch.thresholds import Levels


def asked(groups: int) -> list[Comparison]:
    bound = Levels(yellow=0.1, red=0.2)
    return [
        Comparison(("m", str(i)), measure, "history", bound, 500, 500, lambda _: Difference(0.0, 0.0, 1.0))
        for i in range(groups)
        for measure in (PSI, MMD)
    ]


@pytest.mark.parametrize("groups", [1, 5, 40])
def test_one_p_value_can_fall_below_alpha_after_the_correction(groups: int) -> None:
    smallest = 1 / (effort_for(asked(groups), Thresholds()).permutations + 1)
    assert smallest * 2 * groups <= Thresholds().alpha


def test_few_routes_are_compared_with_all_the_rows_that_are_asked_for() -> None:
    assert effort_for(asked(5), Thresholds()).rows == 512
    assert effort_for(asked(5), Thresholds(mmd_rows=100)).rows == 100


@pytest.mark.parametrize("groups", [40, 100, 300])
def test_the_work_stays_bounded_for_many_routes(groups: int) -> None:
    effort = effort_for(asked(groups), Thresholds())
    assert LEAST_ROWS < effort.rows < 512
    assert groups * effort.permutations * (2 * effort.rows) ** 2 <= MOST_WORK


def test_for_very_many_routes_there_is_a_least_number_of_rows() -> None:
    effort = effort_for(asked(2000), Thresholds())
    assert (effort.permutations, effort.rows) == (MOST_PERMUTATIONS, LEAST_ROWS)
