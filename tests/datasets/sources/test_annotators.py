"""References from ten annotators: what counts as one answer, and which answers have enough support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.datasets.base import RejectedRow
from sgpu.datasets.image_files import FileImage
from sgpu.datasets.options import read_options
from sgpu.datasets.sources.annotators import (
    AnnotatedRow,
    AnnotatorSettings,
    check_rows,
    normalised,
    references,
    support,
)
from sgpu.errors import UsageError

SUPPORT = AnnotatorSettings()


def row(question_id: Any = "q1", text: Any = "What?", answers: Any = ("cup",), **fields: Any) -> AnnotatedRow:
    given = list(answers) if isinstance(answers, tuple) else answers
    image = fields.pop("image", FileImage(Path("x.jpg")))
    return AnnotatedRow("all", "f.json", "entry 0", question_id, text, given, "x.jpg", image, **fields)


def rejection(bad: AnnotatedRow) -> RejectedRow:
    checked = check_rows([bad, row("good")], SUPPORT, ["all"])
    assert [question.question_id for question in checked.pools["all"]] == ["good"]
    (rejected,) = checked.rejected
    return rejected


# Expected values by the published rules of the VQA evaluation (visualqa.org, "Evaluation"), worked by hand.
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Red", "red"),
        (" a  red\ncup ", "red cup"),
        ("The U.S.", "us"),
        ("3.5", "3.5"),
        ("1,000", "1000"),
        ("red, white", "red white"),
        ("black/white", "black white"),
        ("t-shirt", "t shirt"),
        ("Two dogs!", "2 dogs"),
        ("none", "0"),
        ("ten", "10"),
        ("dont know", "don't know"),
        ("don’t know", "don't know"),
        ("it's", "it's"),
        ("well", "well"),
        ("7:30", "7:30"),
    ],
)
def test_answers_are_compared_without_case_punctuation_and_articles(answer: str, expected: str) -> None:
    assert normalised(answer) == expected


@pytest.mark.parametrize("answer", ["A", "the", "?"])
def test_an_answer_of_which_nothing_would_be_left_stays(answer: str) -> None:
    assert normalised(answer) == answer.lower()


def test_support_counts_spellings_of_one_answer_together() -> None:
    assert support(["Two", "2", "two", "three", ""]) == {"2": 3, "3": 1}


def test_references_are_the_answers_that_vqa_accuracy_calls_fully_right() -> None:
    ten = ["red"] * 5 + ["blue"] * 3 + ["green"] * 2
    # VQA accuracy (Antol et al. 2015, section 3): min(annotators who gave it / 3, 1).
    fully_right = {answer for answer in ten if min(ten.count(answer) / 3, 1) == 1}
    assert set(references(ten, SUPPORT)) == fully_right == {"red", "blue"}


def test_references_stand_by_support_and_then_by_text() -> None:
    assert references(["b"] * 3 + ["c"] * 4 + ["ab"] * 3, SUPPORT) == ("c", "ab", "b")


def test_without_enough_support_the_most_frequent_answer_is_the_reference() -> None:
    ten = ["d", "c", "b", "c", "b", "e", "f", "g", "h", "i"]
    assert references(ten, SUPPORT) == ("b",)


def test_a_reference_has_the_spelling_that_most_annotators_used() -> None:
    assert references(["None", "none", "none ", "0"], SUPPORT) == ("none",)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"refs": "consensus"}, ("red",)),
        ({"refs": "all"}, ("red", "blue", "green")),
        ({"min_support": 2}, ("red", "blue", "green")),
        ({"min_support": 5}, ("red",)),
    ],
)
def test_options_choose_the_references(options: dict[str, Any], expected: tuple[str, ...]) -> None:
    settings = read_options("vizwiz", AnnotatorSettings, options)
    assert references(["red"] * 5 + ["blue"] * 3 + ["green"] * 2, settings) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"min_suport": 2}, "Did you mean 'min_support'"),
        ({"refs": "some"}, "refs: Input should be 'support', 'consensus' or 'all'"),
        ({"min_support": 0}, "min_support: Input should be greater than or equal to 1"),
        ({"min_support": 11}, "min_support: Input should be less than or equal to 10"),
    ],
)
def test_an_unknown_or_invalid_option_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_options("vizwiz", AnnotatorSettings, options)


def test_a_question_keeps_the_ten_answers_and_their_counts() -> None:
    ten = ("Red", "red", "a red", "blue", "blue", "blue", "dark", "dark", "light", "?")
    (question,) = check_rows([row(answers=ten)], SUPPORT, ["all"]).pools["all"]
    assert question.all_answers == ten
    assert question.meta["answer_counts"] == {"blue": 3, "red": 3, "dark": 2, "?": 1, "light": 1}


def test_an_unanswerable_consensus_is_a_reference_and_is_flagged() -> None:
    ten = ("unanswerable",) * 6 + ("unsuitable",) * 2 + ("cup",) * 2
    (question,) = check_rows([row(answers=ten)], SUPPORT, ["all"]).pools["all"]
    assert question.references == ("unanswerable",)
    assert question.meta["unanswerable"] is True
    assert question.meta["n_unanswerable"] == 8


def test_answers_may_be_mappings_with_other_fields() -> None:
    answers = [{"answer": "horse", "raw_answer": "a horse", "answer_id": i} for i in range(3)]
    (question,) = check_rows([row(answers=answers)], SUPPORT, ["all"]).pools["all"]
    assert question.references == ("horse",)
    assert question.all_answers == ("horse",) * 3


def test_a_blank_answer_is_kept_but_supports_nothing() -> None:
    (question,) = check_rows([row(answers=("", "", "", "cup"))], SUPPORT, ["all"]).pools["all"]
    assert question.references == ("cup",)
    assert question.all_answers == ("", "", "", "cup")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(text=""), "question is blank"),
        (row(text=None), "question is None, not text"),
        (row(text=["What?"]), "not text"),
        (row(answers=None), "there are no answers"),
        (row(answers=()), "there are no answers"),
        (row(answers="cup"), "not a list"),
        (row(answers=("cup", 7)), "answer 1 is 7, not text"),
        (row(answers=({"raw_answer": "cup"},)), "answer 0 is None, not text"),
        (row(answers=("", " ")), "all answers are blank"),
        (row(answers=("\ud83d",)), "surrogate"),
        (row(question_id=None), "question_id is None"),
        (row(question_id=True), "question_id is True"),
        (row(question_id=1.5), "question_id is 1.5"),
        (row(image=None), "image x.jpg is absent"),
    ],
)
def test_a_malformed_row_is_rejected_with_its_reason_and_the_others_go_on(
    bad: AnnotatedRow, reason: str
) -> None:
    rejected = rejection(bad)
    assert reason in rejected.reason
    assert (rejected.file, rejected.row) == ("f.json", "entry 0")
    assert rejected.remedy


def test_of_two_rows_with_one_id_the_first_stays() -> None:
    checked = check_rows([row(7, "First?"), row("7", "Second?")], SUPPORT, ["all"])
    assert [question.text for question in checked.pools["all"]] == ["First?"]
    assert "already that of f.json, entry 0" in checked.rejected[0].reason
