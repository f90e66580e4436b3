"""Rows that have to meet before they are settled, wherever in the logs they stand; the index of all.

Batch output holds answers, its input file the questions: both meet by the id of the batch's line. Single
answers with one request id meet because they may belong to different sets. Events of telemetry that are each
a part of a call meet by the call, and so does a span with the one around it: both may tell the same answers.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.logs.accounting import Accounting
from sgpu.logs.records import CallPart, LogRecord, Reason, Rejected
from sgpu.logs.rows.telemetry import assembled
from sgpu.scoring.parts import Step
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.ingest import JOINED, OWN, chunks_of
from sgpu.scoring.sets.shuffle import part_of, parts_for, shuffle
from sgpu.scoring.sets.work_rows import (
    ABOUT,
    ANSWER,
    AROUND,
    CALL,
    PROMPT,
    RECORD,
    REJECTED,
    SAME_ID,
    SCHEMA,
    Row,
    items_of,
    of_record,
    of_rejected,
    rejected_row,
    settled,
)
from sgpu.storage.location import Location

# What the input line of a batch says of its answers, where the output does not say it.
_OF_QUESTION = ("prompt_sha256", "route", "model", "group_key", "prompt", "reason", "detail")


def deal(plan: DayPlan, units: Sequence[Mapping[str, Any]]) -> int:
    """Bring rows together that wait for each other; in how many parts.

    The note that it is done comes last, and names the folder: another run may be at the same plan.
    """
    waiting = [content[JOINED] for content in units]
    rows, characters = (sum(part[name] for part in waiting) for name in ("rows", "characters"))
    if not rows:
        return 0
    if (done := _dealt(plan).read_json()) is not None:
        return int(done["parts"])
    files = [plan.work / "ingest" / file for part in waiting for file in part["files"]]
    parts = parts_for(rows, characters)
    name = f"waiting-{uuid.uuid4().hex}"
    shuffle(plan.work / name, items_of(files, SCHEMA), "join_key", parts)
    _dealt(plan).write_json({"folder": name, "parts": parts})
    return parts


def _dealt(plan: DayPlan) -> Location:
    return plan.work / "ingest" / "waiting.json"


class Joiner(Step):
    """Joins parts of what waits; a piece is a key. Errors as in `Reader`."""

    name: ClassVar[str] = "joining"

    def work(self, part: str, pieces: Sequence[str] | None) -> dict[str, Any]:
        joining = _Joining(self._plan, part, pieces)
        for key, together in self._by_key(part, pieces):
            joining.take(key, together)
        return joining.finished()

    def pieces(self, part: str) -> list[str]:
        return sorted({key for key, _ in self._by_key(part, None, ["join_key"])})

    def give_up(self, part: str, pieces: Mapping[str, str]) -> dict[str, Any]:
        joining = _Joining(self._plan, part, pieces)
        # Without the texts, which may be what ended the process.
        columns = [name for name in SCHEMA.names if name not in ("texts", "prompt")]
        for key, together in self._by_key(part, list(pieces), columns):
            joining.give_up(key, together, pieces[key])
        return joining.finished()

    def _by_key(
        self, part: str, keys: Sequence[str] | None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[str, list[Row]]]:
        """Each key with its rows, in the order of the logs."""
        folder = self._plan.work / _dealt(self._plan).read_json()["folder"]
        if (rows := part_of(folder, int(part), ("join_key", "split", "line", "item"))) is None:
            return
        rows = rows if columns is None else rows.select(columns)
        rows = rows if keys is None else rows.filter(pc.is_in(rows["join_key"], pa.array(keys)))
        for key, together in groupby(rows.to_pylist(), key=itemgetter("join_key")):
            yield key, list(together)


class _Joining:
    """The rows of one part after they have met, and what became of those that are no rows any more."""

    def __init__(self, plan: DayPlan, part: str, pieces: Iterable[str] | None) -> None:
        self._plan, self._own = plan, chunks_of(plan, f"join-{part}", pieces, OWN)
        self._prompts, self._nested = 0, 0
        self._no_answer = Counter[str]()

    def take(self, key: str, together: list[Row]) -> None:
        if key.startswith(CALL):
            made, counted, beneath = _call(key.removeprefix(CALL), together, self._plan)
            self._no_answer += counted
            self._nested += beneath
            for row in made:
                self._own.add(row)
            return
        if key.startswith(SAME_ID):
            together = _agreed(together)
        question, answered = _question_of(together), any(row["kind"] != PROMPT for row in together)
        for row in together:
            if row["kind"] in (RECORD, REJECTED):
                self._own.add(_joined(row, question, self._plan))
            elif row["kind"] == PROMPT and answered:
                self._prompts += 1
            elif row["kind"] == PROMPT:
                self._own.add(_without_output(row, self._plan))

    def give_up(self, key: str, together: list[Row], why: str) -> None:
        """What would have become rows of the table goes to quarantine; the others are counted as ever."""
        if key.startswith(CALL):
            answers = [row for row in together if row["kind"] == ANSWER]
            self._no_answer += _counted(together)
            together = answers[:1]
        answered = any(row["kind"] != PROMPT for row in together)
        detail = f"{len(together)} rows that belong together: {why}"
        for row in together:
            if row["kind"] == PROMPT and answered:
                self._prompts += 1
            elif row["kind"] in (RECORD, REJECTED, PROMPT, ANSWER):
                self._own.add(settled(rejected_row(row, Reason.SCORING_FAILED, detail), self._plan))

    def finished(self) -> dict[str, Any]:
        self._own.flush()
        return {
            "prompts": self._prompts, "no_answer": dict(self._no_answer), "nested": self._nested,
            OWN: self._own.counted(),
        }  # fmt: skip


def _call(call_id: str, rows: Sequence[Row], plan: DayPlan) -> tuple[list[Row], Counter[str], int]:
    """The request of the parts of a call, how its other lines are counted, and how many spans beneath it have
    answers too where it has its own."""
    answers = [row for row in rows if row["kind"] == ANSWER]
    about = [row for row in rows if row["kind"] == ABOUT]
    counted = _counted(rows)
    spans = [row for row in rows if row["kind"] == AROUND]
    beneath = [row for row in spans if row["request_id"] != call_id]
    own = bool(answers) or any(row["texts"] for row in spans if row["request_id"] == call_id)
    nested = len({row["request_id"] for row in beneath if row["texts"]}) if own else 0
    if not answers:
        return [], counted, nested
    parts = [
        CallPart(call_id, row["prompt"], row["timestamp"], row["model"], row["route"])
        for row in (*answers, *about)
    ]
    item = assembled(call_id, parts, [row["model"] for row in beneath if row["model"]])
    first = answers[0]["split"], answers[0]["line"]
    assert isinstance(item, LogRecord | Rejected)
    made = of_record(item, *first) if isinstance(item, LogRecord) else of_rejected(item, *first)
    return [settled(made, plan)], counted, nested


def _counted(rows: Sequence[Row]) -> Counter[str]:
    """The lines of a call that do not become its row, by what they are."""
    counted = Counter(row["reason"] for row in rows if row["kind"] == ABOUT)
    if answers := sum(row["kind"] == ANSWER for row in rows):
        counted["part_of_a_call"] = answers - 1
    return counted


def _agreed(rows: list[Row]) -> list[Row]:
    """Single answers with one request id as rows of one set, or refused where they contradict each other."""
    answers = [row for row in rows if row["kind"] == RECORD]
    if len({(row["model"], row["group_key"], *row["texts"]) for row in answers}) > 1:
        detail = "another row with this request id and other content is in these logs"
        return [rejected_row(row, Reason.CONFLICT, detail) for row in rows]
    # One that is delivered again has its clock when it was answered, whatever the second delivery says.
    first = min((row["timestamp"] for row in answers), default=0)
    return [{**row, "timestamp": first} if row["kind"] == RECORD else row for row in rows]


def _question_of(rows: Sequence[Row]) -> Row:
    """What the input says. Of several batches that use an id twice, nobody knows which one is meant."""
    different = {tuple(row[name] for name in _OF_QUESTION): row for row in rows if row["kind"] == PROMPT}
    if len(different) == 1:
        return next(iter(different.values()))
    # Answers that may be to several questions are no set: one such line speaks for all of its id.
    faulty: Row = next((row for row in different.values() if row["reason"] is not None), {})
    return {name: faulty.get(name) if name in ("reason", "detail") else None for name in _OF_QUESTION}


def _joined(row: Row, question: Row, plan: DayPlan) -> Row:
    if question["reason"] is not None:  # such a request has no answers that could be compared
        row = rejected_row(row, Reason(question["reason"]), question["detail"])
    else:
        for name in ("prompt_sha256", "route", "model", "group_key", "prompt"):
            row[name] = question[name] if row[name] is None else row[name]
    return settled(row, plan)


def _without_output(row: Row, plan: DayPlan) -> Row:
    detail = (
        "no line of output that was read with it has the custom_id of this line; "
        "the input and the output of a batch belong in one folder"
    )
    return settled(rejected_row(row, Reason.NO_OUTPUT, detail), plan)


@dataclass(frozen=True)
class Index:
    """The ``files`` of settled rows, ``rows`` and ``characters`` in all, and the lines before each split.

    ``accounting`` knows the rows that are in none. ``files`` are relative to the folder of the reading.
    """

    files: tuple[str, ...]
    rows: int
    characters: int
    lines_before: tuple[int, ...]
    accounting: Mapping[str, Any] = field(default_factory=dict)
    dated: int = 0  # rows with a time of their own, that are not of another day
    own_days: tuple[str, ...] = ()  # of these times; where folders name the day, they may be any

    def locations(self, work: Location) -> list[Location]:
        """Of the files."""
        return [work / "ingest" / file for file in self.files]


def index_of(
    plan: DayPlan,
    units: Sequence[Mapping[str, Any]],
    joins: Sequence[Mapping[str, Any]],
) -> Index:
    """The index of all markers, in the order of their numbers."""
    dealt = [content[OWN] for content in (*units, *joins)]
    rows = sum(part["rows"] for part in dealt)
    kinds = Counter[str]()
    for content in joins:
        kinds.update(content.get("no_answer", {}))
    # A file that was read in many parts is one.
    faults = {(file, reason) for content in units for file, reason in content["faults"]}
    accounting = sum(
        (Accounting.from_json(content["accounting"]) for content in units),
        Accounting(
            files=len(plan.snapshot.files),
            file_faults=dict(sorted(Counter(reason for _, reason in faults).items())),
            prompts=sum(content["prompts"] for content in joins),
            no_answer=kinds.total(),
            no_answer_by_kind=dict(sorted(kinds.items())),
            nested=sum(content.get("nested", 0) for content in joins),
        ),
    )
    return Index(
        files=tuple(file for part in dealt for file in part["files"]),
        rows=rows,
        characters=sum(part["characters"] for part in dealt),
        lines_before=_lines_before(plan, units),
        accounting=accounting.to_json(),
        dated=sum(content["dated"] for content in units),
        own_days=tuple(sorted({day for content in units for day in content["own_days"]})),
    )


def _lines_before(plan: DayPlan, units: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """For each split the lines of its file that stand before it."""
    lines = {int(split): count for content in units for split, count in content["lines"].items()}
    before: list[int] = []
    for _, splits in groupby(plan.splits, key=lambda split: split.file):
        counts = [lines[split.number] for split in splits]
        before += [0, *accumulate(counts[:-1])]
    return tuple(before)
