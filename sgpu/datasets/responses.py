"""Bring your own answers: a file of response sets that were sampled elsewhere.

Every record has ``question_id``, ``question`` and ``answers``; it may have ``references``,
``token_logprobs`` (one list per answer, natural log), ``label`` (1 right, 0 wrong), ``split`` and ``group``.
A record that cannot be used is quarantined and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import Question, RejectedRow, Source
from sgpu.datasets.response_files import MIN_ANSWERS, ResponseReading, ResponseRow
from sgpu.datasets.split import SplitResult, given_split, in_key_order, questions_table, split_questions
from sgpu.errors import DataError, UsageError
from sgpu.hashing import sha256_of_file
from sgpu.storage.tables import LABELS, RESPONSES, Table

NAME = "responses"


@dataclass(frozen=True)
class ImportedResponses:
    """The tables of one file (`sgpu.storage.tables`), all with the rows and order of the questions table.

    ``labels`` is None if the file gives no label: then a judge is needed, and ``n_unlabelled`` counts the
    rows without references, which no judge can label. Otherwise the labels are used as given and rows
    without one are in the table with status "missing", counted by ``n_unlabelled``: a judge's labels among
    somebody else's would not mean the same.
    """

    questions: pa.Table
    responses: pa.Table
    labels: pa.Table | None
    quarantined: list[RejectedRow]
    n: int
    source_sha256: str
    split: SplitResult
    n_duplicates: int
    n_unlabelled: int
    unused_columns: tuple[str, ...]


def load_responses(
    path: str | Path,
    n: int | None = None,
    *,
    seed: int = 0,
    test_share: float = 0.4,
    validation_share: float = 0.1,
    name: str = NAME,
    any_count: bool = False,
) -> ImportedResponses:
    """Read, check and split a file of responses.

    ``n`` is the number of answers of the cell; by default the most common count (the smaller of two). Rows
    with more use their first ``n``, rows with fewer are quarantined; with ``any_count`` every row keeps the
    answers it has. Identical duplicates are dropped and counted; another record under an id that was already
    read is quarantined. Without ``split`` in the file the hashed split puts ``test_share`` of the rows in
    test, all of them where the file has neither labels nor references; with it every row needs one, and
    validation, if the file names none, is the last ``validation_share`` of train in key order. ``name``
    enters the keys. Raises DataError for a file that cannot be used at all, UsageError for a setting out of
    range.
    """
    if n is not None and n < MIN_ANSWERS:
        raise UsageError(f"n is {n}, below {MIN_ANSWERS}; agreement needs at least two answers")
    if not 0 <= test_share <= 1:
        raise UsageError(f"test_share is {test_share}; give a value in [0, 1]")
    path = Path(path)
    read = ResponseReading(path)
    rows, chosen = read.rows(n, any_count=any_count)
    if not rows:
        detail = "".join(f"; {row.row}: {row.reason}. {row.remedy}" for row in read.quarantined[:1])
        raise DataError(f"{path}: none of {read.n_rows} rows can be used{detail}")
    sha256 = sha256_of_file(path)
    split = _split(name, rows, sha256, seed, test_share, validation_share)
    ordered = [rows[row.question.question_id] for row in split.rows]
    labelled = any(row.label is not None for row in ordered)
    return ImportedResponses(
        questions=questions_table(split),
        responses=_table(RESPONSES, map(_response_record, ordered)),
        labels=_table(LABELS, map(_label_record, ordered)) if labelled else None,
        quarantined=read.quarantined,
        n=chosen,
        source_sha256=sha256,
        split=split,
        n_duplicates=read.n_duplicates,
        n_unlabelled=sum(row.label is None if labelled else not row.references for row in ordered),
        unused_columns=read.unused_columns,
    )


def _split(
    name: str,
    rows: dict[str, ResponseRow],
    sha256: str,
    seed: int,
    test_share: float,
    validation_share: float,
) -> SplitResult:
    """As the file says; by hashed ids where it says nothing."""
    questions = [
        Question(row.question_id, row.question, row.references, row.group or row.question_id)
        for row in rows.values()
    ]
    source = Source(name, sha256, "unknown", "", {"all": questions})
    if any(row.split for row in rows.values()):
        return given_split(source, [str(row.split) for row in rows.values()], seed, validation_share)
    # Without both classes of labels, or references, nothing can be trained: all questions are ranked.
    given = {row.label for row in rows.values() if row.label is not None}
    trainable = len(given) == 2 if given else any(row.references for row in rows.values())
    groups = [question.group for question in in_key_order(name, seed, questions)]
    n_test = round((test_share if trainable else 1.0) * len(groups))
    # A cut group would lose its other rows, and nobody can sample more of them here.
    while 0 < n_test < len(groups) and groups[n_test] == groups[n_test - 1]:
        n_test += 1
    return split_questions(source, len(groups) - n_test, n_test, seed, validation_share)


def _response_record(row: ResponseRow) -> dict[str, Any]:
    logprobs = row.token_logprobs
    return {
        "question_id": row.question_id,
        "status": "ok",
        "answers": row.answers,
        "raw_answers": row.answers,
        "token_logprobs": logprobs,
        "n_tokens": None if logprobs is None else [len(tokens) for tokens in logprobs],
        "engine": "imported",
    }


def _label_record(row: ResponseRow) -> dict[str, Any]:
    if row.label is not None:
        return {"question_id": row.question_id, "status": "ok", "label": row.label, "n_missing": 0}
    error = "the file gives no label for this row"
    return {"question_id": row.question_id, "status": "missing", "error": error}


def _table(table: Table, records: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(records), schema=table.schema)
