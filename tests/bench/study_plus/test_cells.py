"""Questions of the study: chosen by a pilot, known answers, families that share nothing."""

from __future__ import annotations

from itertools import combinations

import pytest

from bench.study_plus.cells import CELLS, choose_questions
from bench.study_plus.questions import Asked, accepted_names, number_names
from sgpu.judges.alias import AliasJudge
from sgpu.judges.base import Item

POOLS = {cell.name: cell.pool() for cell in CELLS}


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_large_enough_and_do_not_contain_their_answers(name: str) -> None:
    pool = POOLS[name]
    assert len({one.question_id for one in pool}) == len(pool) >= 150
    cell = next(cell for cell in CELLS if cell.name == name)
    if cell.name in ("options", "larger") or cell.declined:
        return
    votes = AliasJudge().judge([Item("", one.references, one.question) for one in pool])
    assert not any(vote.correct for vote in votes)


def test_no_question_is_asked_twice_or_shown_in_the_turns_before_it() -> None:
    shown = [asked for cell in CELLS for asked, _ in cell.turns]
    asked = {name: {one.question for one in pool} for name, pool in POOLS.items()}
    assert not any(first & second for first, second in combinations(asked.values(), 2))
    assert not any(set(shown) & questions for questions in asked.values())


def test_divided_questions_come_first_then_right_and_wrong_ones_in_turn() -> None:
    pool = [Asked(str(i), "?", ("x",)) for i in range(8)]
    votes = {"0": [1, 1], "1": [0, 0], "2": [1, 0], "3": [0, 0], "4": [0, 0], "5": [1, 1], "6": [1, 1]}
    assert [one.question_id for one in choose_questions(pool, votes, 5)] == ["2", "1", "0", "3", "5"]
    assert len(choose_questions(pool, votes, 20)) == 7  # the last one has no vote


def test_names_of_numbers_and_in_other_languages() -> None:
    assert [number_names(n)[1] for n in (8, 13, 20, 42)] == ["eight", "thirteen", "twenty", "forty-two"]
    assert {"Peru", "Pérou"} <= set(accepted_names(["Peru"]))
