"""What every judge must hold. Inherit it, give the fixture `judge`, `right`, `wrong` and `unjudgeable`."""

from __future__ import annotations

import random

import pytest

from sgpu.judges.base import Item, Judge


class JudgeContract:
    right: Item
    wrong: Item
    unjudgeable: Item  # with a text in its answer, for which this judge must return None

    @pytest.fixture
    def judge(self) -> Judge:
        raise NotImplementedError

    def answered(self, text: str) -> Item:
        return Item(self.right.question, self.right.references, text)

    def test_it_has_a_name(self, judge: Judge) -> None:
        assert judge.name

    def test_a_right_answer_gets_true(self, judge: Judge) -> None:
        assert [vote.correct for vote in judge.judge([self.right])] == [True]

    def test_a_wrong_answer_gets_false(self, judge: Judge) -> None:
        assert [vote.correct for vote in judge.judge([self.wrong])] == [False]

    def test_what_cannot_be_judged_is_missing_and_not_wrong(self, judge: Judge) -> None:
        assert [vote.correct for vote in judge.judge([self.unjudgeable])] == [None]

    def test_without_a_reference_nothing_can_be_judged(self, judge: Judge) -> None:
        items = [Item(self.right.question, names, self.right.answer) for names in ((), ("",))]
        votes = judge.judge(items)
        assert [vote.correct for vote in votes] == [None, None]

    def test_an_empty_answer_is_wrong(self, judge: Judge) -> None:
        votes = judge.judge([self.answered(text) for text in ("", " \n\t")])
        assert [vote.correct for vote in votes] == [False, False]

    def test_no_items_give_no_votes(self, judge: Judge) -> None:
        assert judge.judge([]) == []

    def test_order_changes_nothing(self, judge: Judge) -> None:
        items = [self.right, self.wrong, self.unjudgeable, self.answered("")]
        votes = dict(zip(items, judge.judge(items), strict=True))
        for seed in range(5):
            shuffled = random.Random(seed).sample(items, len(items))
            assert judge.judge(shuffled) == [votes[item] for item in shuffled]

    def test_duplicates_get_the_vote_of_the_single_item(self, judge: Judge) -> None:
        (yes,), (no,) = judge.judge([self.right]), judge.judge([self.wrong])
        mixed = [self.right, self.wrong, self.right, self.right, self.wrong]
        assert judge.judge(mixed) == [yes, no, yes, yes, no]

    @pytest.mark.parametrize("text", ["\x00", "\u2028", "{question}", "%s" * 50, "𝕏" * 3000, "a\u0301" * 50])
    def test_hostile_text_is_judged_without_an_error(self, judge: Judge, text: str) -> None:
        assert len(judge.judge([Item(text, (text,), text), self.answered(text)])) == 2
