"""A set that kills its worker is found, and costs the others nothing. A death is an exception here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sgpu.errors import IntegrityError, StageError
from sgpu.scoring.isolation import FailureRecord, scored_apart

SETS = [(f"set {i}",) for i in range(20)]


class Death(BaseException):
    """The process is gone."""


def with_restarts(
    sets: Sequence[Sequence[str]], score: Callable[[Sequence[Sequence[str]]], Any]
) -> tuple[tuple[list[int], list[Any], dict[int, str]], int]:
    """The result, and how many workers died on the way; what they knew dies with them, but for the record."""
    suspicions, deaths = FailureRecord(), 0
    while True:
        try:
            return scored_apart(
                "b", sets, score, lambda name, *given: getattr(suspicions, name)(*given)
            ), deaths
        except Death:
            deaths += 1
            assert deaths < 100


def killer(*poison: str) -> Callable[[Sequence[Sequence[str]]], Any]:
    def score(sets: Sequence[Sequence[str]]) -> Any:
        if any(text in poison for texts in sets for text in texts):
            raise Death
        return list(sets)

    return score


def test_undisturbed_sets_are_scored_in_one_call() -> None:
    (places, results, bad), deaths = with_restarts(SETS, killer())
    assert (places, results, bad, deaths) == (list(range(20)), [SETS], {}, 0)


@pytest.mark.parametrize("poison", [["set 0"], ["set 13"], ["set 3", "set 4"], ["set 0", "set 19"]])
def test_sets_that_kill_are_given_up_and_the_rest_is_scored_together(poison: list[str]) -> None:
    (places, results, bad), _ = with_restarts(SETS, killer(*poison))
    assert {f"set {place}" for place in bad} == set(poison)
    assert all("alone" in why for why in bad.values())
    assert results == [[texts for texts in SETS if texts[0] not in poison]]
    assert sorted([*places, *bad]) == list(range(20))


def test_a_set_that_raises_is_given_up_without_its_message() -> None:
    def score(sets: Sequence[Sequence[str]]) -> Any:
        if ("set 7",) in sets:
            raise ValueError("the secret answer")
        return list(sets)

    (_, results, bad), deaths = with_restarts(SETS, score)
    assert (bad, deaths) == ({7: "could not be scored: ValueError"}, 0)
    assert results == [[texts for texts in SETS if texts != ("set 7",)]]


def test_two_unlucky_deaths_change_nothing() -> None:
    left = [2]

    def score(sets: Sequence[Sequence[str]]) -> Any:
        if left[0]:
            left[0] -= 1
            raise Death
        return list(sets)

    (_, results, bad), deaths = with_restarts(SETS, score)
    assert (results, bad, deaths) == ([SETS], {}, 2)


def test_sets_that_are_only_too_many_at_a_time_are_scored_in_pieces() -> None:
    def score(sets: Sequence[Sequence[str]]) -> Any:
        if len(sets) > 6:
            raise Death
        return list(sets)

    (places, results, bad), _ = with_restarts(SETS, score)
    assert (places, bad) == (list(range(20)), {})
    assert [texts for part in results for texts in part] == SETS and max(map(len, results)) <= 6


def test_where_nearly_all_fail_it_is_not_the_sets() -> None:
    def score(sets: Sequence[Sequence[str]]) -> Any:
        raise RuntimeError("no kernel image")

    with pytest.raises(StageError, match="hardly the fault of the logs"):
        with_restarts([(f"set {i}",) for i in range(60)], score)


def test_a_deliberate_error_is_no_fault_of_a_set() -> None:
    def score(sets: Sequence[Sequence[str]]) -> Any:
        raise IntegrityError("another encoder")

    with pytest.raises(IntegrityError):
        with_restarts(SETS, score)
