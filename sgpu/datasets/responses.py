"""Bring your own answers: a file of response sets that were sampled elsewhere.

Every record has ``question_id``, ``question`` and ``answers``; it may have ``references``,
``token_logprobs`` (one list per answer, natural log), ``label`` (1 right, 0 wrong), ``split`` and ``group``.
A record that cannot be used is quarantined and the others go on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.base import Question, Source
from sgpu.datasets.response_files import file_sha256, read_rows
from sgpu.datasets.response_rows import MIN_ANSWERS, OPTIONAL, REQUIRED, ResponseRow, RowError, parse_row
from sgpu.datasets.split import (
    SplitResult,
    SplitRow,
    hold_out,
    in_key_order,
    questions_table,
    split_questions,
)
from sgpu.errors import DataError, UsageError
from sgpu.tables import LABELS, RESPONSES

NAME = "responses"


@dataclass(frozen=True)
class Rejected:
    """A quarantined record: where it stands (row from 1; line in JSON Lines only), why, and what to do."""

    file: str
    row: int
    line: int | None
    question_id: str | None
    reason: str
    remedy: str


@dataclass(frozen=True)
class ImportedResponses:
    """The tables of ``sgpu.tables`` for one file, rows in the order of the questions table.

    ``labels`` has a row for each given label (status "ok") and for each row that has neither label nor
    references (status "missing", counted by ``n_unlabelled``). Rows with references alone are not in it:
    ``n_to_judge`` of them wait for a judge. None if no row is in it.
    """

    questions: pa.Table
    responses: pa.Table
    labels: pa.Table | None
    quarantined: list[Rejected]
    n: int
    source_sha256: str
    split: SplitResult
    n_duplicates: int
    n_to_judge: int
    n_unlabelled: int
    unused_columns: tuple[str, ...]


def load(
    path: str | Path,
    n: int | None = None,
    *,
    seed: int = 0,
    test_share: float = 0.4,
    validation_share: float = 0.1,
) -> ImportedResponses:
    """Read, check and split a file of responses.

    ``n`` is the number of answers of the cell; by default the most common count (the smaller of two). Rows
    with more use their first ``n``, rows with fewer are quarantined. Identical duplicates are dropped and
    counted; another record under an id that was already read is quarantined. Without ``split`` in the file
    the hashed split puts ``test_share`` of the rows in test; with it every row needs one, and validation, if
    the file names none, is the last ``validation_share`` of train in key order.
    Raises DataError for a file that cannot be used at all, UsageError for a setting out of range.
    """
    if n is not None and n < MIN_ANSWERS:
        raise UsageError(f"n is {n}, below {MIN_ANSWERS}; agreement needs at least two answers")
    if not 0 <= test_share <= 1:
        raise UsageError(f"test_share is {test_share}; give a value in [0, 1]")
    path = Path(path)
    read = _Reading(path)
    rows, chosen = read.rows_of_equal_count(n)
    if not rows:
        first = read.quarantined[0] if read.quarantined else None
        detail = f"; row {first.row}: {first.reason}. {first.remedy}" if first else ""
        raise DataError(f"{path}: none of {read.n_rows} rows can be used{detail}")
    sha256 = file_sha256(path)
    split = _split(rows, sha256, seed, test_share, validation_share)
    ordered = [rows[row.question.question_id] for row in split.rows]
    labels = [record for row in ordered if (record := _label_record(row))]
    return ImportedResponses(
        questions=questions_table(split),
        responses=pa.Table.from_pylist(list(map(_response_record, ordered)), schema=RESPONSES.schema),
        labels=pa.Table.from_pylist(labels, schema=LABELS.schema) if labels else None,
        quarantined=sorted(read.quarantined, key=lambda rejected: rejected.row),
        n=chosen,
        source_sha256=sha256,
        split=split,
        n_duplicates=read.n_duplicates,
        n_to_judge=len(ordered) - len(labels),
        n_unlabelled=sum(record["status"] == "missing" for record in labels),
        unused_columns=tuple(sorted(read.columns - {*REQUIRED, *OPTIONAL})),
    )


class _Reading:
    """One pass over the file: the good rows by id, the quarantined ones, and the counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good: dict[str, tuple[ResponseRow, int, int | None]] = {}
        self.quarantined: list[Rejected] = []
        self.columns: set[str] = set()
        self.n_duplicates = 0
        self.n_rows = 0
        for raw in read_rows(path):
            self.n_rows += 1
            if raw.record is None:
                fault = f"the line {raw.fault}"
                self._reject(raw.row, raw.line, None, RowError(fault, "Write one JSON object per line."))
            else:
                self.columns.update(raw.record)
                self._take(raw.row, raw.line, raw.record)
        absent = [column for column in REQUIRED if column not in self.columns]
        if self.n_rows == 0 or (absent and self.columns):
            what = f"has no column {', '.join(map(repr, absent))}" if self.columns else "has no rows"
            found = ", ".join(sorted(self.columns)) or "none"
            raise DataError(f"{path}: {what}. Needed: {', '.join(REQUIRED)}. Found: {found[:300]}.")

    def rows_of_equal_count(self, n: int | None) -> tuple[dict[str, ResponseRow], int]:
        """The good rows cut to ``n`` answers, or to the most common count; shorter ones quarantined."""
        counts = Counter(len(row.answers) for row, _, _ in self._good.values())
        chosen = n or min(counts, key=lambda count: (-counts[count], count), default=MIN_ANSWERS)
        kept = {}
        for question_id, (row, number, line) in self._good.items():
            if len(row.answers) >= chosen:
                kept[question_id] = _first_answers(row, chosen)
                continue
            reason = f"answers has {len(row.answers)} entries, below the {chosen} of this cell"
            remedy = "Sample the rest, or set n to a smaller number for all rows."
            self._reject(number, line, question_id, RowError(reason, remedy))
        # One row without a split among rows that have one: its side is not ours to choose.
        if any(row.split for row in kept.values()):
            for question_id in [key for key, row in kept.items() if row.split is None]:
                _, number, line = self._good[question_id]
                error = RowError("split is missing while other rows have one", "Give every row a split.")
                self._reject(number, line, question_id, error)
                del kept[question_id]
        return kept, chosen

    def _take(self, number: int, line: int | None, record: dict[str, Any]) -> None:
        try:
            row = parse_row(record)
            earlier = self._good.get(row.question_id)
            if earlier is None:
                self._good[row.question_id] = (row, number, line)
            elif earlier[0] == row:
                self.n_duplicates += 1
            else:
                raise RowError(
                    f"question_id was already used by row {earlier[1]} with other content",
                    "Give each response set its own question_id.",
                )
        except RowError as error:
            question_id = record.get("question_id")
            self._reject(
                number, line, ascii(question_id)[1:81] if isinstance(question_id, str) else None, error
            )

    def _reject(self, number: int, line: int | None, question_id: str | None, error: RowError) -> None:
        self.quarantined.append(
            Rejected(str(self._path), number, line, question_id, error.reason, error.remedy)
        )


def _printable_id(value: Any) -> str | None:
    """A refused id may be anything; only text is reported, cut and without half characters."""
    return value[:80].encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _first_answers(row: ResponseRow, n: int) -> ResponseRow:
    logprobs = row.token_logprobs[:n] if row.token_logprobs is not None else None
    return replace(row, answers=row.answers[:n], token_logprobs=logprobs)


def _split(
    rows: dict[str, ResponseRow], sha256: str, seed: int, test_share: float, validation_share: float
) -> SplitResult:
    questions = [
        Question(row.question_id, row.question, row.references, row.group or row.question_id)
        for row in rows.values()
    ]
    if not any(row.split for row in rows.values()):
        n_test = round(test_share * len(questions))
        source = Source(NAME, sha256, "unknown", "", {"all": questions})
        return split_questions(source, len(questions) - n_test, n_test, seed, validation_share)
    sides: dict[str, list[Question]] = {"train": [], "validation": [], "test": []}
    for question in in_key_order(NAME, seed, questions):
        sides[rows[question.question_id].split or ""].append(question)
    _check_groups(sides)
    requested = {"train": len(sides["train"]) + len(sides["validation"]), "test": len(sides["test"])}
    if not sides["validation"]:
        sides["train"], sides["validation"] = hold_out(sides["train"], validation_share)
    ranked = [
        SplitRow(question, side, position)  # type: ignore[arg-type]
        for side, members in sides.items()
        for position, question in enumerate(members)
    ]
    return SplitResult(NAME, sha256, seed, ranked, requested, rule="given by the file")


def _check_groups(sides: dict[str, list[Question]]) -> None:
    tested = {question.group for question in sides["test"]}
    shared = sorted({q.group for side in ("train", "validation") for q in sides[side]} & tested)
    if shared:
        raise DataError(
            f"{len(shared)} groups stand in train and in test, the first {shared[0][:80]!r}. "
            "Give all rows of a group the same split, or leave the column group out."
        )


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


def _label_record(row: ResponseRow) -> dict[str, Any] | None:
    """None for a row that a judge can label."""
    if row.label is not None:
        return {"question_id": row.question_id, "status": "ok", "label": row.label, "n_missing": 0}
    if row.references:
        return None
    error = "the file gives neither a label nor references"
    return {"question_id": row.question_id, "status": "missing", "error": error}
