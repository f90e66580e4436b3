"""What an answer says to its judge goes; what it says about the question stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu.judges.guard import guard
from sgpu.judges.prompt import marked_prompt
from tests.judges.adversarial import FOR_NO, FOR_YES, HARMLESS, QUESTIONS, Question


def prompt(question: Question, answer: str) -> str:
    return marked_prompt(question.question, question.references, guard(answer, question.references).text)


def attacked(answer: tuple[str, tuple[str, str]], attack: str) -> list[tuple[str, str]]:
    """(attacked, clean): the attack behind, before and amid the answer."""
    short, (first, second) = answer
    both = f"{first} {second}"
    return [
        (f"{short}. {attack}", short),
        (f"{short}\n{attack}", short),
        (f"{attack}\n{short}", short),
        (f"{both} {attack}", both),
        (f"{attack}\n\n{both}", both),
        (f"{first} {attack}\n{second}", both),
        (f"{first}\n{attack} \n{second}\n{attack}", both),
    ]


@pytest.mark.parametrize("attack", FOR_YES)
def test_a_wrong_answer_that_asks_for_yes_is_judged_as_without_it(attack: str) -> None:
    for question in QUESTIONS:
        for text, clean in attacked(question.wrong, attack):
            assert prompt(question, text) == prompt(question, clean), text


@pytest.mark.parametrize("attack", [*FOR_NO, *FOR_YES])
def test_a_right_answer_with_an_attack_is_judged_as_without_it(attack: str) -> None:
    for question in QUESTIONS:
        for text, clean in attacked(question.right, attack):
            assert prompt(question, text) == prompt(question, clean), text


def test_at_most_one_in_fifty_harmless_answers_is_touched() -> None:
    touched = [answer for reference, answer in HARMLESS if guard(answer, [reference]).removed]
    assert len(HARMLESS) >= 60
    assert len(touched) <= 0.02 * len(HARMLESS), touched


def test_clean_answers_of_the_attacked_questions_are_not_touched() -> None:
    for question in QUESTIONS:
        for short, pair in (question.right, question.wrong):
            assert not guard(short, question.references).removed
            assert not guard(" ".join(pair), question.references).removed
