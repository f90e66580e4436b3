"""What is wrong with the bad requests, and how scoring has to account for each.

Faults of answers change what the model said; faults of a line change the bytes that were logged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.constructed_logs.settings import Format
from bench.constructed_logs.traffic import Request
from sgpu.logs.records import MAX_SAMPLES, Reason
from sgpu.storage.json_lines import MAX_TEXT

Fate = Literal["scored", "quarantined", "duplicate", "no_answer", "prompt"]
Finish = Literal["stop", "length", "refusal", "tool_calls", "content_filter"]
ALL: tuple[Format, ...] = ("sgpu", "openai", "openai_batch", "otel", "mlflow", "single")
SETS: tuple[Format, ...] = ("sgpu", "openai", "openai_batch", "otel", "mlflow")
CHAT: tuple[Format, ...] = ("openai", "openai_batch", "mlflow")

# Fault -> why its rows are quarantined, and the formats that can show it.
ANSWER_FAULTS: dict[str, tuple[Reason, tuple[Format, ...]]] = {
    "one_answer": (Reason.TOO_FEW, ALL),
    "all_refused": (Reason.REFUSAL, CHAT),
    "all_tool_calls": (Reason.TOOL_CALL, (*CHAT, "otel")),
    "all_filtered": (Reason.CONTENT_FILTER, SETS),
    "all_empty": (Reason.EMPTY, SETS),
    "oversize": (Reason.OVERSIZE, ALL),
    "too_many": (Reason.TOO_MANY, ("sgpu", "openai")),
    "lone_surrogate": (Reason.ENCODING, ("sgpu", "openai")),
}
LINE_FAULTS: dict[str, tuple[Reason, tuple[Format, ...]]] = {
    "bad_bytes": (Reason.ENCODING, ALL),
    "cut_line": (Reason.NOT_JSON, ALL),
    "plain_text": (Reason.NOT_JSON, ALL),
    "missing_field": (Reason.MISSING_FIELD, ALL),
    "bad_time": (Reason.BAD_VALUE, ("sgpu", "single")),
    "conflict": (Reason.CONFLICT, ("sgpu", "openai", "otel", "mlflow")),
    "failed_request": (Reason.FAILED_REQUEST, ("openai_batch", "otel", "mlflow")),
    "no_output": (Reason.NO_OUTPUT, ("openai_batch",)),
}
FAULTS = ANSWER_FAULTS | LINE_FAULTS
# A file of Parquet has no lines that could be broken, and its text is always Unicode.
NOT_IN_PARQUET = ("bad_bytes", "cut_line", "plain_text", "lone_surrogate", "bad_time")


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer as the model's server gives it; ``text`` is None where there is none."""

    text: str | None
    finish: Finish = "stop"


@dataclass(frozen=True, slots=True)
class Planted:
    """What is known of one row: its fate, why, and which fault made it so (None: a good row)."""

    fate: Fate
    format: Format
    request_id: str
    reason: Reason | None = None
    fault: str | None = None


def faults_of(format: Format) -> list[str]:
    """The faults that rows of this format can have, always in the same order."""
    return [name for name, (_, formats) in FAULTS.items() if format in formats]


def choices(request: Request, fault: str | None, partial: bool) -> list[Choice]:
    """What the server gave; ``partial``: one answer is filtered, one empty, the others (two or more) good."""
    texts = request.answers
    if fault == "one_answer":
        return [Choice(texts[0])]
    if fault == "oversize":
        return [Choice("x" * (MAX_TEXT + 1)), *map(Choice, texts[1:])]
    if fault == "too_many":
        return [Choice(texts[0])] * (MAX_SAMPLES + 1)
    if fault == "lone_surrogate":
        return [Choice(f"{texts[0]}\ud83d"), *map(Choice, texts[1:])]
    whole: dict[str | None, Choice] = {
        "all_refused": Choice(None, "refusal"),
        "all_tool_calls": Choice(None, "tool_calls"),
        "all_filtered": Choice(None, "content_filter"),
        "all_empty": Choice(""),
    }
    if fault in whole:
        return [whole[fault]] * len(texts)
    if partial:
        return [*map(Choice, texts[:-2]), Choice(None, "content_filter"), Choice("")]
    # One answer that ran into the limit is an answer still.
    return [*map(Choice, texts[:-1]), Choice(texts[-1], "length" if request.number % 7 == 0 else "stop")]


def spoiled(record: dict[str, Any], fault: str | None, needed: Sequence[str | int]) -> bytes:
    """The record's line, with its fault if that is one of lines. ``needed``: path of a required field."""
    if fault == "plain_text":
        return b"upstream connect error or disconnect/reset before headers"
    if fault == "missing_field":
        place: Any = record
        for key in needed[:-1]:
            place = place[key]
        del place[needed[-1]]
    if fault == "bad_time":
        record["timestamp"] = "yesterday"
    line = json.dumps(record, ensure_ascii=fault == "lone_surrogate", separators=(",", ":")).encode()
    if fault == "cut_line":
        return line[: len(line) // 2]
    # Inside a string, so that nothing but the encoding is wrong.
    return line.replace(b'":"', b'":"\xff', 1) if fault == "bad_bytes" else line
