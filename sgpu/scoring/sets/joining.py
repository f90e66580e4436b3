"""Rows that have to meet before they are settled, wherever in the logs they stand; the index of all.

Batch output holds answers, its input file the questions: both meet by the id of the batch's line. Single
answers with one request id meet because they may belong to different sets. Events of telemetry that are each
a part of a call meet by the call, and so does a span with the one around it: both may tell the same answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.logs.accounting import Accounting
from sgpu.logs.records import CallPart, LogRecord, Reason, Rejected
from sgpu.logs.rows.telemetry import assembled
from sgpu.scoring.isolation import LONE_DEATHS
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.ingest import JOINED, OWN, Attempt, Chunks
from sgpu.scoring.sets.relations import Relations
from sgpu.scoring.sets.work_rows import (
    ABOUT,
    ANSWER,
    AROUND,
    CALL,
    PROMPT,
    RECORD,
    REJECTED,
    SAME_ID,
    Row,
    items_of,
    of_record,
    of_rejected,
    rejected_row,
    settled,
)
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows

# What the input line of a batch says of its answers, where the output does not say it.
_KNOWN = ("prompt_sha256", "route", "model", "group_key", "prompt", "reason", "detail")


def deal(plan: DayPlan, files: Sequence[str], relations: Relations) -> int:
    """Write what waits for other rows into files that each hold all rows of their keys; how many there are.

    One pass over the ``files`` of all units, and a sort. The note that it is done comes last: what is joined
    then has to be cut as it was.
    """
    folder = plan.work / "ingest"
    done = folder / "waiting.json"
    if (parts := read_json(done)) is None:
        parts = 0
        for rows in _parts(relations.run("joined", items_of(folder, files))):
            (folder / f"waiting-{parts:05d}.parquet").write_bytes(parquet_bytes(rows, compression="zstd"))
            parts += 1
        write_json(done, parts)
    return int(parts)


def _parts(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in parts of bounded size, none of which ends within a key."""
    part: list[pa.Table] = []
    for rows in pieces:
        if sum(map(len, part)) >= ROWS_AT_ONCE or sum(one.nbytes for one in part) >= BYTES_AT_ONCE:
            other = pc.not_equal(rows["join_key"], part[-1]["join_key"][-1])
            end = pc.index(other, True).as_py() if pc.any(other).as_py() else len(rows)
            part.append(rows.slice(0, end))
            rows = rows.slice(end)
            if len(rows):
                yield pa.concat_tables(part)
                part = []
        part += [rows] if len(rows) else []
    if part:
        yield pa.concat_tables(part)


def join(plan: DayPlan, part: int, alone: Attempt | None = None) -> dict[str, Any]:
    """Join one part of what waits, unless that was done; the content of its marker.

    ``alone`` is given where joining it has ended workers: the rows of each key are then tried by themselves,
    and those that have ended `LONE_DEATHS` go to quarantine.
    """
    done = plan.work / "ingest" / f"join-{part:05d}.json"
    if (found := read_json(done)) is not None:
        return found
    rows = read_rows(plan.work / "ingest" / f"waiting-{part:05d}.parquet")
    joining = _Joining(plan, Chunks(plan.work / "ingest" / f"join-{part:05d}", OWN))
    if alone is None:
        for key, together in _by_key(rows):
            joining.take(key, together)
    else:
        _one_by_one(rows, joining, alone)
    content = joining.finished()
    write_json(done, content)
    return content


def _one_by_one(rows: pa.Table, joining: _Joining, alone: Attempt) -> None:
    for number, key in enumerate(sorted(pc.unique(rows["join_key"]).to_pylist())):
        of_key = rows.filter(pc.equal(rows["join_key"], key))
        with alone(number) as deaths:
            if deaths < LONE_DEATHS:
                joining.take(key, of_key.to_pylist())
            else:  # without the texts, which may be what ended it
                joining.give_up(key, of_key.drop_columns(["texts", "prompt"]).to_pylist())


class _Joining:
    """The rows of one part after they have met, and what became of those that are no rows any more."""

    def __init__(self, plan: DayPlan, own: Chunks) -> None:
        self._plan, self._own = plan, own
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
        known, answered = _known(together), any(row["kind"] != PROMPT for row in together)
        for row in together:
            if row["kind"] in (RECORD, REJECTED):
                self._own.add(_joined(row, known, self._plan))
            elif row["kind"] == PROMPT and answered:
                self._prompts += 1
            elif row["kind"] == PROMPT:
                self._own.add(_without_output(row))

    def give_up(self, key: str, together: list[Row]) -> None:
        """What would have become rows of the table goes to quarantine; the others are counted as ever."""
        if key.startswith(CALL):
            answers = [row for row in together if row["kind"] == ANSWER]
            self._no_answer += _counted(together)
            together = answers[:1]
        answered = any(row["kind"] != PROMPT for row in together)
        detail = f"{LONE_DEATHS} times the {len(together)} rows that belong together have ended their process"
        for row in together:
            if row["kind"] == PROMPT and answered:
                self._prompts += 1
            elif row["kind"] in (RECORD, REJECTED, PROMPT, ANSWER):
                self._own.add(settled(rejected_row(row, Reason.SCORING_FAILED, detail), 0))

    def finished(self) -> dict[str, Any]:
        self._own.flush()
        return {
            "prompts": self._prompts, "no_answer": dict(self._no_answer), "nested": self._nested,
            OWN: self._own.counted(),
        }  # fmt: skip


def waiting_files(markers: Sequence[dict[str, Any]]) -> list[str]:
    """The files of all units that hold rows to be joined."""
    return [file for content in markers for file in content[JOINED]["files"]]


def _by_key(rows: pa.Table) -> Iterator[tuple[str, list[Row]]]:
    """Each key with its rows, in the order of the logs, in which they stand."""
    for join_key, together in groupby(rows.to_pylist(), key=itemgetter("join_key")):
        yield join_key, list(together)


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
    if plan.settings.resample is None:
        made["prompt"] = None
    return [settled(made, plan.settings.group_window_s, plan.folder)], counted, nested


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


def _known(rows: Sequence[Row]) -> Row:
    """What the input says. Of several batches that use an id twice, nobody knows which one is meant."""
    different = {tuple(row[name] for name in _KNOWN): row for row in rows if row["kind"] == PROMPT}
    if len(different) == 1:
        return next(iter(different.values()))
    # Answers that may be to several questions are no set: one such line speaks for all of its id.
    faulty: Row = next((row for row in different.values() if row["reason"] is not None), {})
    return {name: faulty.get(name) if name in ("reason", "detail") else None for name in _KNOWN}


def _joined(row: Row, known: Row, plan: DayPlan) -> Row:
    if known["reason"] is not None:  # such a request has no answers that could be compared
        row = rejected_row(row, Reason(known["reason"]), known["detail"])
    else:
        for name in ("prompt_sha256", "route", "model", "group_key", "prompt"):
            row[name] = known[name] if row[name] is None else row[name]
    return settled(row, plan.settings.group_window_s, plan.folder)


def _without_output(row: Row) -> Row:
    detail = (
        "no line of output that was read with it has the custom_id of this line; "
        "the input and the output of a batch belong in one folder"
    )
    return settled(rejected_row(row, Reason.NO_OUTPUT, detail), 0)


ROWS_AT_ONCE = 50_000
BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True)
class Index:
    """The ``files`` of rows that need no others, ``rows`` in all, and the lines before each split.

    ``accounting`` knows the rows that are in none. ``files`` are relative to the folder of the reading.
    """

    files: tuple[str, ...]
    rows: int
    lines_before: tuple[int, ...]
    accounting: Mapping[str, Any] = field(default_factory=dict)
    dated: int = 0  # rows with a time of their own, that are not of another day
    own_days: tuple[str, ...] = ()  # of these times; where folders name the day, they may be any

    def save(self, work: Location) -> None:
        write_json(work / "ingest" / "index.json", asdict(self))

    @classmethod
    def load(cls, work: Location) -> Index | None:
        content = read_json(work / "ingest" / "index.json")
        if content is None:
            return None
        tuples = {name: tuple(content[name]) for name in ("files", "lines_before", "own_days")}
        return cls(**{**content, **tuples})


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
