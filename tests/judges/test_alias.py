"""The alias judge: words that compare equal, and what counts as naming a reference."""

from __future__ import annotations

import pytest

from sgpu.judges.alias import AliasJudge, most_named
from sgpu.judges.base import Item, Judge
from tests.contracts.judge_contract import JudgeContract


class TestAliasContract(JudgeContract):
    right = Item("What is the capital of France?", ("Paris",), "It is Paris.")
    wrong = Item("What is the capital of France?", ("Paris",), "Lyon")
    unjudgeable = Item("What is the capital of France?", ("?!",), "Paris")

    @pytest.fixture
    def judge(self) -> Judge:
        return AliasJudge()


def correct(answer: str, *references: str) -> bool | None:
    return AliasJudge().judge([Item("Which?", references, answer)])[0].correct


RIGHT = [
    ("PARIS!", "Paris"),
    ("The answer is the Netherlands", "The Netherlands"),
    ("Cote d'Ivoire", "Côte d’Ivoire"),
    ("Lodz", "Łódź"),
    ("Guinea Bissau", "Guinea-Bissau"),
    ("St. Petersburg is right", "Petersburg"),
    ("Washington, D.C. is the capital", "capital"),
    ("\n\n  Paris\nLyon", "Paris"),
    ("The U.S. of course", "US"),
    ("in the UK.", "UK"),
    ("1,000 metres", "1000"),
    ("Paris, Île-de-France, France", "Paris"),
    ("Not Lyon but in fact it is Paris", "Paris"),
    ("A", "A"),
]
WRONG = [
    ("Nigeria", "Niger"),
    ("Parisian", "Paris"),
    ("Lyon. It may also be Paris", "Paris"),
    ("Lyon\nParis", "Paris"),
    ("It is not Paris", "Paris"),
    ("It isn't in Paris", "Paris"),
    ("France, Spain, Italy, Malta, Greece", "Malta"),
    ("Berlin or Rome or Paris or Oslo or Bern", "Paris"),
    ("tell us", "US"),
    ("10.5", "10"),
    ("St. Denis", "St. Petersburg"),
]


@pytest.mark.parametrize(("answer", "reference"), RIGHT)
def test_named_in_the_first_sentence_is_right(answer: str, reference: str) -> None:
    assert correct(answer, reference) is True


@pytest.mark.parametrize(("answer", "reference"), WRONG)
def test_not_named_or_taken_back_or_guessed_is_wrong(answer: str, reference: str) -> None:
    assert correct(answer, reference) is False


def test_any_of_several_references_is_enough() -> None:
    assert correct("Holland", "Netherlands", "Holland") is True


def test_an_unusable_reference_beside_a_good_one_does_no_harm() -> None:
    assert correct("Paris", "--", "Paris") is True
    assert correct("--", "--", "Paris") is False


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["The capital is Ouagadougou.", "Ouagadougou", "ouagadougou!", "Bamako"], ("Ouagadougou", 3)),
        (["Lima", "Cusco", "Cusco"], ("Cusco", 2)),
        (["", "", "Lima"], ("", 2)),
        (["a, b, c, d, e"] * 3 + ["b"], ("a, b, c, d, e", 3)),
    ],
)
def test_the_answer_that_most_others_repeat_or_name(answers: list[str], expected: tuple[str, int]) -> None:
    assert most_named(answers) == expected
