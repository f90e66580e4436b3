"""A request as the rows of its format: which files each goes to, its bytes, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.constructed_logs import chat_formats, span_formats
from bench.constructed_logs.faults import FAULTS, Choice, Fate, Planted, spoiled
from bench.constructed_logs.settings import Format
from bench.constructed_logs.traffic import Request
from sgpu.logs.records import Reason

# Nothing of such a line can be read, not even whose it is.
UNREADABLE = ("bad_bytes", "cut_line", "plain_text")


@dataclass(frozen=True, slots=True)
class Row:
    """A line for the files of ``stream``. ``record`` is the object itself, for files of Parquet."""

    stream: str
    line: bytes
    planted: tuple[Planted, ...]
    record: dict[str, Any] | None = None


def rows_of(
    format: Format, request: Request, given: Sequence[Choice], fault: str | None, fate: Fate | None = None
) -> list[Row]:
    """All rows of a request. ``fate`` overrides what the fault says, for a second delivery."""
    reason = FAULTS[fault][0] if fault else None
    planted = Planted(fate or ("quarantined" if fault else "scored"), format, "", reason, fault)
    if format == "openai_batch":
        return _batch(request, given, planted)
    if format == "single":
        rows = _singles(request, given, planted)
        return rows[:1] if fate == "duplicate" else rows
    if format in ("otel", "mlflow"):
        return [_spans(request, given, planted)]
    write = chat_formats.sgpu if format == "sgpu" else chat_formats.openai
    record = write(request, given)
    planted = replace(planted, request_id=record["request_id" if format == "sgpu" else "id"])
    return [Row(format, spoiled(record, fault, ("model",)), (planted,), record)]


def _spans(request: Request, given: Sequence[Choice], planted: Planted) -> Row:
    """One line: the request, and beside it spans of other kinds, which are rows without an answer."""
    write, name = (
        (span_formats.otel, span_formats.otel_id)
        if planted.format == "otel"
        else (span_formats.mlflow, span_formats.mlflow_id)
    )
    record, others, needed = write(request, given, failed=planted.fault == "failed_request")
    own = replace(planted, request_id=name(request))
    beside = Planted("no_answer", planted.format, own.request_id)
    count = 0 if planted.fault in UNREADABLE else others
    return Row(planted.format, spoiled(record, planted.fault, needed), (own, *[beside] * count))


def _batch(request: Request, given: Sequence[Choice], planted: Planted) -> list[Row]:
    """A line of the input and one of the output; the prompt of an output that cannot be read has none."""
    # A request that failed has no response with an id.
    prefix = "batch_req_" if planted.fault == "failed_request" else "chatcmpl-"
    planted = replace(planted, request_id=f"{prefix}{request.request_id}")
    custom_id = f"task-{request.request_id}"
    if planted.fault in ("no_output", *UNREADABLE):
        asked = Planted("quarantined", "openai_batch", custom_id, Reason.NO_OUTPUT, planted.fault)
    else:
        asked = Planted("prompt", "openai_batch", custom_id)
    question = Row("batch-input", spoiled(chat_formats.batch_input(request), None, ()), (asked,))
    if planted.fault == "no_output":
        return [question]
    output = chat_formats.batch_output(request, given, failed=planted.fault == "failed_request")
    needed = ("response", "body", "created")
    answer = Row("batch-output", spoiled(output, planted.fault, needed), (planted,))
    # A second delivery brings the answer alone.
    return [answer] if planted.fate == "duplicate" else [question, answer]


def _singles(request: Request, given: Sequence[Choice], planted: Planted) -> list[Row]:
    """A row for each answer. A fault stands in the first, which leaves the set; the others are scored."""
    good = replace(planted, fate="scored", reason=None, fault=None)
    rows = []
    for place, choice in enumerate(given):
        record = chat_formats.single(request, choice, place)
        own = replace(planted if place == 0 else good, request_id=record["request_id"])
        rows.append(Row("single", spoiled(record, own.fault, ("model",)), (own,)))
    return rows
