"""What the tests of spectra spend, however many routes there are."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.watch import effort
from sgpu.watch.comparisons import MMD, PSI, Comparison
from sgpu.watch.effort import (
    LEAST_ROWS,
    ComparisonResult,
    compare_all,
    families_of,
    permutations_for,
    rows_for,
    work,
)
from sgpu.watch.thresholds import Levels, Thresholds
from sgpu.watch.two_sample_tests import MeasuredDifference, Samples

BOUND = Levels(yellow=0.1, red=0.2)


def samples(shift: float, seed: int, rows: int = 200) -> Samples:
    draw = np.random.default_rng(seed)
    return Samples(draw.normal(shift, 1, (rows, 3)), draw.normal(0, 1, (rows, 3)), seed)


def asked(shifts: list[float]) -> list[Comparison]:
    return [
        Comparison(("m", str(i)), MMD, "history", BOUND, 200, 200, samples(shift, i))
        for i, shift in enumerate(shifts)
    ]


def spent(tests: list[Comparison], **thresholds: float) -> list[ComparisonResult]:
    found = compare_all(tests, families_of(tests), Thresholds(**thresholds))  # type: ignore[arg-type]
    return [found[place] for place in sorted(found)]


@pytest.mark.parametrize("tests", [1, 9, 600, 9000])
def test_one_p_value_can_fall_below_alpha_after_the_correction(tests: int) -> None:
    assert tests / (permutations_for(tests, 0.005) + 1) <= 0.005


def test_what_lies_below_its_yellow_bound_gets_the_largest_p_value_without_permutations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effort, "MOST_WORK", 0.0)
    [still] = spent(asked([0.0]))
    assert still.affordable and still.difference.p == 1.0
    assert still.difference.effect < BOUND.yellow and "no permutation was drawn" in still.remark


def test_a_test_that_moved_has_the_smallest_p_value_of_its_permutations() -> None:
    tests = asked([1.0, 0.0])
    moved, still = spent(tests)
    assert moved.difference.p == 1 / (permutations_for(2, 0.01) + 1) and still.difference.p == 1.0
    assert (moved.rows, moved.reference_rows, moved.remark) == (200, 200, "")


def test_other_measures_are_tested_as_they_are() -> None:
    one = Comparison(None, PSI, "history", BOUND, 30, 40, lambda: MeasuredDifference(3.0, 0.3, 0.02))
    assert spent([one]) == [ComparisonResult(MeasuredDifference(3.0, 0.3, 0.02), 30, 40)]


def test_where_many_have_moved_fewer_rows_are_permuted_and_the_effect_is_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = asked([1.0, 1.0])
    whole = spent(tests)
    monkeypatch.setattr(effort, "MOST_WORK", 2 * work(permutations_for(2, 0.01), 200))
    reduced = spent(tests)
    assert [one.difference.effect for one in reduced] == [one.difference.effect for one in whole]
    assert {one.rows for one in reduced} == {100} and all(one.difference.p < 0.005 for one in reduced)
    assert "the effect is of 200 rows against 200" in reduced[0].remark


def test_where_not_even_the_least_rows_are_affordable_the_largest_effects_are_tested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = asked([0.7, 1.0, 0.8])
    monkeypatch.setattr(effort, "MOST_WORK", 1.5 * work(permutations_for(3, 0.01), 2 * LEAST_ROWS))
    found = spent(tests)
    assert [one.affordable for one in found] == [False, True, False]
    assert f"the effect is {found[0].difference.effect:.3f}" in found[0].remark
    assert found[0].difference.p == 1.0  # it still counts in the correction


def test_what_a_test_that_stops_early_leaves_is_there_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [
        Comparison(("m", str(i)), MMD, "history", Levels(yellow=0, red=9), 200, 200, samples(0.0, i))
        for i in range(6)
    ]
    monkeypatch.setattr(effort, "MOST_WORK", 3 * work(permutations_for(6, 0.01), 2 * LEAST_ROWS))
    assert all(one.affordable for one in spent(tests))


def test_all_of_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [samples(1.0, seed) for seed in range(40)]
    permutations = permutations_for(400, 0.005)
    most = 40 * work(permutations, 300)
    assert rows_for(many, permutations, 512, most) == 150
    assert rows_for(many, permutations, 512, most / 100) == LEAST_ROWS
    assert rows_for(many, permutations, 20, most / 100) == 20
    assert rows_for(many, permutations, 512, 40 * work(permutations, 400)) == 512
