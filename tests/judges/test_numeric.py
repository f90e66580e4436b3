"""The numeric judge: which number an answer holds, and exact equality."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sgpu.judges.base import Item, Judge
from sgpu.judges.numeric import NumericJudge, final_number
from tests.contracts.judge_contract import JudgeContract


class TestNumericContract(JudgeContract):
    right = Item("6 * 7?", ("42",), "6 * 7 is 42.")
    wrong = Item("6 * 7?", ("42",), "It is 41.")
    unjudgeable = Item("6 * 7?", ("42",), "I would rather not say")

    @pytest.fixture
    def judge(self) -> Judge:
        return NumericJudge()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("first 3, then 4", "4"),
        ("#### 42", "42"),
        ("#### 42 and then 7\nno, #### 43", "43"),
        ("$1,234,567.50", "1234567.5"),
        ("-$5", "-5"),
        ("\u221212", "-12"),
        ("10-20", "20"),
        ("50%", "50"),
        ("it is 3.", "3"),
        (".5", "0.5"),
        ("1.5e3", "1500"),
        ("3.14.15", "3.14"),
        ("1,2345", "2345"),
        ("2,000, I think", "2000"),
        ("12km", "12"),
    ],
)
def test_the_number_that_an_answer_ends_in(text: str, number: str) -> None:
    assert final_number(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "none", "####", "7 #### none", "GPT4", "v2.x"])
def test_text_without_a_number_has_none(text: str) -> None:
    assert final_number(text) is None


def test_equality_is_decimal_and_exact() -> None:
    def correct(answer: str, reference: str) -> bool | None:
        return NumericJudge().judge([Item("?", (reference,), answer)])[0].correct

    assert correct("0.30", "0.3") is True
    assert correct("0.1000000000000000000001", "0.1") is False


def test_an_answer_of_many_digits_is_compared() -> None:
    (vote,) = NumericJudge().judge([Item("?", ("1",), "9" * 50_000)])
    assert vote.correct is False
