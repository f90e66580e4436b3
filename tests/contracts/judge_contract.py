"""What every judge must hold. Inherit it, give `judge`, `right`, `wrong` and `unjudgeable`."""

from __future__ import annotations

import random

import pytest

from sgpu.judges.base import Item, Judge


class JudgeContract:
    @pytest.fixture
    def judge(self) -> Judge:
        raise NotImplementedError

    @pytest.fixture
    def right(self) -> Item:
        raise NotImplementedError

    @pytest.fixture
    def wrong(self) -> Item:
        raise NotImplementedError

    @pytest.fixture
    def unjudgeable(self) -> Item:
        """An item with a text in its answer for which this judge must return None."""
        raise NotImplementedError

    def test_it_has_a_name(self, judge: Judge) -> None:
        assert judge.name

    def test_a_right_answer_gets_true(self, judge: Judge, right: Item) -> None:
        assert [vote.correct for vote in judge.judge([right])] == [True]

    def test_a_wrong_answer_gets_false(self, judge: Judge, wrong: Item) -> None:
        assert [vote.correct for vote in judge.judge([wrong])] == [False]

    def test_what_cannot_be_judged_is_missing_and_not_wrong(self, judge: Judge, unjudgeable: Item) -> None:
        assert [vote.correct for vote in judge.judge([unjudgeable])] == [None]

    def test_without_a_reference_nothing_can_be_judged(self, judge: Judge, right: Item) -> None:
        votes = judge.judge(
            [Item(right.question, (), right.answer), Item(right.question, ("",), right.answer)]
        )
        assert [vote.correct for vote in votes] == [None, None]

    def test_an_empty_answer_is_wrong(self, judge: Judge, right: Item) -> None:
        votes = judge.judge([Item(right.question, right.references, text) for text in ("", " \n\t")])
        assert [vote.correct for vote in votes] == [False, False]

    def test_no_items_give_no_votes(self, judge: Judge) -> None:
        assert judge.judge([]) == []

    def test_order_changes_nothing(self, judge: Judge, right: Item, wrong: Item, unjudgeable: Item) -> None:
        items = [right, wrong, unjudgeable, Item(right.question, right.references, "")]
        votes = dict(zip(items, judge.judge(items), strict=True))
        for seed in range(5):
            shuffled = random.Random(seed).sample(items, len(items))
            assert judge.judge(shuffled) == [votes[item] for item in shuffled]

    def test_duplicates_get_the_vote_of_the_single_item(self, judge: Judge, right: Item, wrong: Item) -> None:
        (yes,), (no,) = judge.judge([right]), judge.judge([wrong])
        assert judge.judge([right, wrong, right, right, wrong]) == [yes, no, yes, yes, no]

    @pytest.mark.parametrize("text", ["\x00", "\u2028", "{question}", "%s" * 50, "𝕏" * 3000, "a\u0301" * 50])
    def test_hostile_text_is_judged_without_an_error(self, judge: Judge, right: Item, text: str) -> None:
        assert (
            len(judge.judge([Item(text, (text,), text), Item(right.question, right.references, text)])) == 2
        )
