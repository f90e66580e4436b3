"""Labels of a batch: one judge call, missing kept apart from wrong; strict majority of readable votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from sgpu.errors import StageError
from sgpu.judges.alias import AliasJudge
from sgpu.judges.base import Item, Vote
from sgpu.judges.labels import judge_rows, majority
from sgpu.storage.tables import LABELS, RESPONSES

QUESTIONS = {
    "q1": ("Capital of France?", ("Paris",)),
    "q2": ("Capital of Italy?", ("Rome",)),
    "q3": ("?", ()),
}


class RecordingJudge:
    name = "recording"

    def __init__(self, votes: Sequence[Vote] | None = None) -> None:
        self.calls: list[list[Item]] = []
        self._votes = votes

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        self.calls.append(list(items))
        return AliasJudge().judge(items) if self._votes is None else list(self._votes)


def response(question_id: str, answers: list[str | None] | None, **changes: Any) -> dict[str, Any]:
    return {"question_id": question_id, "status": "ok", "answers": answers, **changes}


def batch(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=RESPONSES.schema)


def label_of(*rows: dict[str, Any], judge: Any = None) -> dict[str, Any]:
    row: dict[str, Any] = judge_rows(batch(*rows), QUESTIONS, judge or AliasJudge()).to_pylist()[0]
    return row


def test_votes_and_label_of_a_judged_row() -> None:
    row = label_of(response("q1", ["Paris", "Lyon", "paris"]))
    assert (row["status"], row["votes"], row["label"], row["n_missing"], row["tie"]) == (
        "ok",
        [1, 0, 1],
        1,
        0,
        False,
    )


def test_the_table_has_the_schema_and_keeps_the_order() -> None:
    table = judge_rows(batch(response("q2", ["Rome"]), response("q1", ["Rome"])), QUESTIONS, AliasJudge())
    assert table.schema.equals(LABELS.schema)
    assert table["question_id"].to_pylist() == ["q2", "q1"]
    assert table["label"].to_pylist() == [1, 0]


def test_an_empty_batch_gives_an_empty_table() -> None:
    judge = RecordingJudge()
    table = judge_rows(batch(), QUESTIONS, judge)
    assert table.num_rows == 0 and table.schema.equals(LABELS.schema) and judge.calls == []


def test_the_distinct_items_of_the_batch_are_judged_in_one_call() -> None:
    judge = RecordingJudge()
    judge_rows(
        batch(response("q1", ["Paris", "Paris", "Rome"]), response("q2", ["Paris", "Rome"])), QUESTIONS, judge
    )
    assert [[(i.question, i.answer) for i in call] for call in judge.calls] == [
        [
            ("Capital of France?", "Paris"),
            ("Capital of France?", "Rome"),
            ("Capital of Italy?", "Paris"),
            ("Capital of Italy?", "Rome"),
        ]
    ]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (
            response("q1", None, status="failed", error="prompt too long"),
            "response is failed: prompt too long",
        ),
        (response("q1", None, status="missing"), "response is missing: no reason given"),
        (response("q9", ["a"]), "the questions table has no such question_id"),
        (response("q3", ["a"]), "no references to judge against"),
        (response("q1", []), "response has no answers"),
    ],
)
def test_a_row_that_cannot_be_judged_is_missing_with_its_reason(row: dict[str, Any], error: str) -> None:
    judged = label_of(row)
    assert (judged["status"], judged["error"], judged["label"], judged["votes"]) == (
        "missing",
        error,
        None,
        None,
    )


def test_votes_that_cannot_be_read_are_counted_and_left_out_of_the_majority() -> None:
    judge = RecordingJudge([Vote(True, 0.9, 0.8), Vote(None, 0.4, 0.001)])
    row = label_of(response("q1", ["Paris", "hm"]), judge=judge)
    assert (row["votes"], row["label"], row["n_missing"]) == ([1, None], 1, 1)
    assert (row["p_yes"], row["mass"]) == ([0.9, 0.4], [0.8, 0.001])


def test_no_readable_vote_is_missing_and_not_wrong() -> None:
    row = label_of(response("q1", ["a", "b"]), judge=RecordingJudge([Vote(None), Vote(None)]))
    assert (row["status"], row["label"], row["n_missing"]) == ("missing", None, 2)
    assert row["error"] == "none of 2 votes could be read"


def test_why_a_judge_could_not_be_asked_stands_in_a_row_without_votes() -> None:
    judge = RecordingJudge([Vote(None), Vote(None, reason="the prompt has 9 tokens")])
    row = label_of(response("q1", ["a", "b"]), judge=judge)
    assert row["error"] == "none of 2 votes could be read: the prompt has 9 tokens"


def test_a_null_answer_is_a_missing_vote_and_is_not_judged() -> None:
    judge = RecordingJudge()
    row = label_of(response("q1", ["Paris", None]), judge=judge)
    assert (row["votes"], row["label"], row["n_missing"]) == ([1, None], 1, 1)
    assert len(judge.calls[0]) == 1


def test_a_judge_that_loses_items_is_an_error() -> None:
    with pytest.raises(StageError, match="returned 1 votes for 2 items"):
        label_of(response("q1", ["a", "b"]), judge=RecordingJudge([Vote(True)]))


T, F = True, False


@pytest.mark.parametrize(
    ("votes", "label", "n_missing", "tie"),
    [
        ([T, T, F], 1, 0, False),
        ([T, F, F], 0, 0, False),
        ([T] * 10 + [F] * 10, 0, 0, True),
        ([T] * 11 + [F] * 9, 1, 0, False),
        ([T, None, None], 1, 2, False),
        ([T, F, None], 0, 1, True),
        ([None, None], None, 2, False),
        ([], None, 0, False),
    ],
)
def test_majority(votes: list[bool | None], label: int | None, n_missing: int, tie: bool) -> None:
    assert majority(votes) == (label, n_missing, tie)
