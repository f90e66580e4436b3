"""The rows that a run keeps between reading the logs and scoring: one schema for all formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sgpu.hashing import sha256_hex
from sgpu.logs.records import DROPS, BatchPrompt, CallPart, Item, LogRecord, Reason, Rejected, why_too_few
from sgpu.logs.rows.question import last_user_text
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.dedupe import content_sha256, group_id
from sgpu.scoring.sets.relations import Rows
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened
from sgpu.storage.store import SHORT
from sgpu.storage.tables import STRINGS

# RECORD: a request with its answers. SINGLE: one answer of a set to be grouped. UNANSWERED: a sound request
# that can only be sampled anew. REJECTED: for the quarantine. PROMPT and OTHER_DAY (of another day) meet
# records with the same key and go no further. ANSWER and ABOUT are parts of a call that telemetry writes in
# pieces; AROUND says of a span which span is around it.
RECORD, SINGLE, UNANSWERED, REJECTED, PROMPT, OTHER_DAY, ANSWER, ABOUT, AROUND = range(9)

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("split", pa.int32()),
        pa.field("line", pa.int64()),
        pa.field("request_id", pa.string()),
        pa.field("timestamp", pa.int64()),
        pa.field("model", pa.string()),
        pa.field("route", pa.string()),
        pa.field("texts", STRINGS),
        pa.field("dropped", STRINGS),
        pa.field("label", pa.int8()),
        pa.field("group_key", pa.string()),
        pa.field("set_id", pa.string()),  # SINGLE: the set that it belongs to
        pa.field("join_key", pa.string()),
        pa.field("prompt_sha256", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("question", pa.string()),  # what the user asked last, where a model reads questions
        pa.field("asked", pa.string()),  # hash of it
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("content", pa.string()),  # of what could be scored, see `content_sha256`
        pa.field("askable", pa.bool_(), nullable=False),  # its question is here
    ]
)

Row = dict[str, Any]

# Before the join key of single answers, which wait for rows with the same request id and not for a question.
SAME_ID = "same id\x1f"
# Before the request id of a call as the key under which its parts, and the spans beneath it, meet.
CALL = "call\x1f"

# A request without a second answer for one of these reasons is sound, and can be asked again.
ASKED_AGAIN = frozenset({Reason.TOO_FEW, *DROPS})


def table_of(rows: Iterable[Row]) -> pa.Table:
    """The rows as a table; what a row does not name is null."""
    complete = [{**row, "askable": row.get("prompt") is not None} for row in rows]
    return pa.Table.from_pylist(complete, schema=SCHEMA)


TEXTS = pa.schema([SCHEMA.field("texts")])
ANSWERED, UNASKED = (
    pa.schema([SCHEMA.field(name), SCHEMA.field("question")]) for name in ("texts", "prompt")
)  # what is scored, and what is asked again
# A row's number: that of its file, and its place in it.
ITEMS_OF_A_FILE = 2**24
ITEM = pa.field("item", pa.int64())


def items_of(files: Sequence[Location], schema: pa.Schema, first: int = 0) -> Rows:
    """These columns of the rows of files, and the rows' numbers; ``first`` is that of the first file."""

    def parts() -> Iterator[pa.Table]:
        for number, file in enumerate(files, start=first):
            start = number * ITEMS_OF_A_FILE
            with opened(file) as parquet:
                # A query that reads these rows may hold all of Arrow's threads while it waits for them.
                for batch in parquet.iter_batches(columns=schema.names, use_threads=False):
                    rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                    yield rows.append_column(ITEM, pa.array(range(start, start + len(rows)), ITEM.type))
                    start += len(rows)

    return Rows(schema.append(ITEM), parts())


def of_record(record: LogRecord, split: int, line: int | None) -> Row:
    """A record as a row; its kind is given by `settled`."""
    return {**_row(RECORD, split, line, record), "texts": [sample.text for sample in record.samples]}


def of_rejected(rejected: Rejected, split: int, line: int | None) -> Row:
    """As `of_record`."""
    return {**_row(REJECTED, split, line, rejected), "reason": str(rejected.reason)}


def of_prompt(prompt: BatchPrompt, split: int, line: int | None) -> Row:
    """The question of a batch; ``reason`` says why its answers cannot be scored, whatever they are."""
    fault = {"reason": prompt.fault and str(Reason.BAD_VALUE), "detail": prompt.fault}
    return {**_row(PROMPT, split, line, prompt), **fault}


def of_part(part: CallPart, kind: int, split: int, line: int | None, counted_as: str | None = None) -> Row:
    """A part of a call. ``counted_as``: what its line is counted as, where it is no answer."""
    key = f"{CALL}{part.request_id}"
    content = {"prompt": part.content, "reason": counted_as, "join_key": key}
    return {**_row(kind, split, line, part), **content}


def _row(kind: int, split: int, line: int | None, item: Item) -> Row:
    """With all columns that the item has by the same name."""
    named = {name: getattr(item, name) for name in SCHEMA.names if hasattr(item, name)}
    return {"kind": kind, "split": split, "line": line, **named}


def around(item: LogRecord | CallPart) -> Iterator[Row]:
    """What tells of a span that it is there and, if one is around it, that it is beneath that one.

    ``texts`` is set where it has answers of its own.
    """
    if item.around is None:
        return
    answered = [""] if isinstance(item, LogRecord) else None
    for call_id in filter(None, dict.fromkeys((item.request_id, item.around))):
        key = f"{CALL}{call_id}"
        row = {"kind": AROUND, "request_id": item.request_id, "model": item.model, "texts": answered}
        yield row | {"join_key": key}


def settled(row: Row, plan: DayPlan) -> Row:
    """A row that needs nothing from another file: what is to be done with it, and by which hash it is known.

    Of its prompt only what the plan needs is kept: the question for models that read questions, all of it
    for a server that is asked again.
    """
    if row["kind"] == RECORD:
        row = _sized(row, plan.settings.group_window_s, plan.folder)
    question = last_user_text(row["prompt"]) if plan.reads_questions and row["prompt"] else None
    if plan.settings.resample is None:
        row["prompt"] = None
    sound = row["kind"] == REJECTED and row["reason"] in ASKED_AGAIN
    if sound and None not in (row["prompt"], row["request_id"], row["timestamp"]):
        row["kind"] = UNANSWERED
    if row["kind"] != REJECTED:
        # Answers that are sampled anew are never the same twice: their question says whether a row was there
        # before.
        texts = row.get("texts") or [row["prompt"]]
        row["content"] = content_sha256(row["model"], texts)
        row |= {"question": question, "asked": question and sha256_hex(question)[:SHORT]}
    return row


def rejected_row(row: Row, reason: Reason, detail: str) -> Row:
    """The row as one for the quarantine."""
    return {**row, "kind": REJECTED, "texts": None, "prompt": None, "reason": str(reason), "detail": detail}


def is_single(row: Row) -> bool:
    """Whether it is one answer of a set to be grouped."""
    return row["kind"] == RECORD and row["group_key"] is not None and len(row["texts"]) == 1


def _sized(row: Row, window_s: int, folder: str) -> Row:
    texts, dropped = row["texts"], row["dropped"]
    if is_single(row):
        set_id = group_id(row["group_key"], row["timestamp"], window_s, folder)
        return {**row, "kind": SINGLE, "set_id": set_id}
    if reason := why_too_few(len(texts), dropped):
        left_out = f"; {len(dropped)} left out" if dropped else ""
        too_few = rejected_row(row, reason, f"{len(texts)} usable answers, below 2{left_out}")
        return {**too_few, "prompt": row["prompt"]}
    return row
