"""The labels of a batch of response sets, from the votes on their answers: pure, on Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sgpu.errors import StageError
from sgpu.judges.base import Item, Judge, Vote
from sgpu.storage.tables import LABELS


class Majority(NamedTuple):
    """``label`` 1, 0 or None (no vote could be read); ``tie``: the readable votes stood equal."""

    label: int | None
    n_missing: int
    tie: bool


def majority(votes: Sequence[bool | None]) -> Majority:
    """Strict majority over the readable votes; a tie is 0 (the paper is silent on 10 of 20)."""
    readable = [vote for vote in votes if vote is not None]
    n_missing = len(votes) - len(readable)
    if not readable:
        return Majority(None, n_missing, False)
    twice_right = 2 * sum(readable)
    return Majority(int(twice_right > len(readable)), n_missing, twice_right == len(readable))


# question_id -> (question, references)
QuestionLookup = Mapping[str, tuple[str, tuple[str, ...]]]


def judge_rows(responses: pa.Table, questions: QuestionLookup, judge: Judge) -> pa.Table:
    """One row of ``tables.LABELS`` for every row of ``responses``, in order.

    All distinct (question, references, answer) of the batch go to the judge in one call. A row that was
    not answered, has no references or has no readable vote gets status "missing", no label and the reason.
    Raises StageError if the judge returns another number of votes than it was given items.
    """
    rows = responses.select(["question_id", "status", "error", "answers"]).to_pylist()
    problems = [_problem(row, questions) for row in rows]
    items = [
        [] if problem else _items(row["answers"], *questions[row["question_id"]])
        for row, problem in zip(rows, problems, strict=True)
    ]
    unique = list(dict.fromkeys(item for row_items in items for item in row_items if item is not None))
    verdicts = judge.judge(unique) if unique else []
    if len(verdicts) != len(unique):
        raise StageError(f"judge {judge.name!r} returned {len(verdicts)} votes for {len(unique)} items")
    votes = dict(zip(unique, verdicts, strict=True))
    records = [
        {"question_id": row["question_id"]}
        | ({"status": "missing", "error": problem} if problem else _label(row_items, votes))
        for row, problem, row_items in zip(rows, problems, items, strict=True)
    ]
    return pa.Table.from_pylist(records, schema=LABELS.schema)


def _problem(row: Mapping[str, Any], questions: QuestionLookup) -> str | None:
    """Why a response set cannot be judged."""
    if row["status"] != "ok":
        return f"response is {row['status']}: {row['error'] or 'no reason given'}"
    if row["question_id"] not in questions:
        return "the questions table has no such question_id"
    if not questions[row["question_id"]][1]:
        return "no references to judge against"
    return None if row["answers"] else "response has no answers"


def _items(answers: Sequence[str | None], question: str, references: Sequence[str]) -> list[Item | None]:
    """None where the answer itself is missing."""
    return [None if text is None else Item(question, tuple(references), text) for text in answers]


def _label(items: Sequence[Item | None], votes: Mapping[Item, Vote]) -> dict[str, Any]:
    cast = [Vote(None) if item is None else votes[item] for item in items]
    result = majority([vote.correct for vote in cast])
    readable = result.label is not None
    reason = next((f": {vote.reason}" for vote in cast if vote.reason), "")
    return {
        "status": "ok" if readable else "missing",
        "error": None if readable else f"none of {len(cast)} votes could be read{reason}",
        "votes": [None if vote.correct is None else int(vote.correct) for vote in cast],
        "p_yes": [vote.p_yes for vote in cast],
        "mass": [vote.mass for vote in cast],
        "guarded": [vote.guarded for vote in cast],
        **result._asdict(),
    }
