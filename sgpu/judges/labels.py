"""The labels of a batch of response sets: pure, on Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sgpu.errors import StageError
from sgpu.judges.base import Item, Judge, Vote
from sgpu.judges.majority import majority
from sgpu.storage.tables import LABELS

# question_id -> (question, references)
QuestionLookup = Mapping[str, tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class _Row:
    question_id: str
    items: tuple[Item | None, ...] = ()  # None where the answer itself is missing
    problem: str | None = None


def judge_rows(responses: pa.Table, questions: QuestionLookup, judge: Judge) -> pa.Table:
    """One row of ``tables.LABELS`` for every row of ``responses``, in order.

    All distinct (question, references, answer) of the batch go to the judge in one call. A row that was
    not answered, has no references or has no readable vote gets status "missing", no label and the reason.
    Raises StageError if the judge returns another number of votes than it was given items.
    """
    rows = list(_rows(responses, questions))
    unique = list(dict.fromkeys(item for row in rows for item in row.items if item is not None))
    given = judge.judge(unique) if unique else []
    if len(given) != len(unique):
        raise StageError(f"judge {judge.name!r} returned {len(given)} votes for {len(unique)} items")
    votes = dict(zip(unique, given, strict=True))
    return pa.Table.from_pylist([_label(row, votes) for row in rows], schema=LABELS.schema)


def _rows(responses: pa.Table, questions: QuestionLookup) -> Iterator[_Row]:
    columns = ["question_id", "status", "error", "answers"]
    for row in responses.select(columns).to_pylist():
        question_id, answers = row["question_id"], row["answers"]
        question, references = questions.get(question_id, (None, ()))
        problem = None
        if row["status"] != "ok":
            problem = f"response is {row['status']}: {row['error'] or 'no reason given'}"
        elif question is None:
            problem = "the questions table has no such question_id"
        elif not references:
            problem = "no references to judge against"
        elif not answers:
            problem = "response has no answers"
        if problem or question is None:
            yield _Row(question_id, problem=problem)
        else:
            items = (None if text is None else Item(question, tuple(references), text) for text in answers)
            yield _Row(question_id, tuple(items))


def _label(row: _Row, votes: Mapping[Item, Vote]) -> dict[str, Any]:
    if row.problem:
        return {"question_id": row.question_id, "status": "missing", "error": row.problem}
    cast = [Vote(None) if item is None else votes[item] for item in row.items]
    result = majority([vote.correct for vote in cast])
    readable = result.label is not None
    return {
        "question_id": row.question_id,
        "status": "ok" if readable else "missing",
        "error": None if readable else f"none of {len(cast)} votes could be read",
        "votes": [None if vote.correct is None else int(vote.correct) for vote in cast],
        "p_yes": [vote.p_yes for vote in cast],
        "mass": [vote.mass for vote in cast],
        "guarded": [vote.guarded for vote in cast],
        **result._asdict(),
    }
