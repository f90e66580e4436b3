from __future__ import annotations

from sgpu.report.study.cells import answer_groups, kinds
from sgpu.report.study.data import Example


def example(
    identity: str = "q",
    probability: float | None = 0.9,
    label: int | None = 1,
    unsafe: bool = False,
    answers: tuple[str, ...] = (),
    votes: tuple[int | None, ...] = (),
    agreement: float | None = None,
) -> Example:
    return Example(
        "m", "d", identity, "?", [], answers, votes, label, [], probability, 0.1, unsafe, agreement
    )


def test_identical_answers_are_counted_once_most_frequent_first() -> None:
    groups = answer_groups(example(answers=("b", "a", "a"), votes=(0, 1, 1)))
    assert groups == [(("a", "correct"), 2), (("b", "wrong"), 1)]


def test_one_text_with_two_votes_is_two_groups() -> None:
    groups = answer_groups(example(answers=("a", "a", "a"), votes=(1, None, 1)))
    assert groups == [(("a", "correct"), 2), (("a", "missing"), 1)]


def test_answers_without_votes_are_missing_not_wrong() -> None:
    assert answer_groups(example(answers=("a",))) == [(("a", "missing"), 1)]


def test_kinds_are_disjoint_and_most_confident_first() -> None:
    groups = kinds(
        [
            example("low", 0.8),
            example("high", 0.95),
            example("wrong", 0.7, label=0),
            example("flagged", 0.52, label=0, unsafe=True),
            example("distrusted", 0.2, label=0),
            example("unscored", None),
            example("unlabelled", 0.9, label=None),
            example("agreeing", 0.1, label=0, agreement=0.9),
            example("half", 0.1, label=0, agreement=0.5),
            example("unanimous", 0.3, label=0, agreement=1.0),
        ]
    )
    correct, wrong, doubted, unsafe = (examples for _, _, examples in groups)
    assert [e.question_id for e in doubted] == ["unanimous", "agreeing"]
    assert [e.question_id for e in correct] == ["high", "low"]
    assert [e.question_id for e in wrong] == ["wrong"]
    assert [e.question_id for e in unsafe] == ["flagged"]
