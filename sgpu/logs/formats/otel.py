"""OpenTelemetry spans and events of calls to models, as exporters write them in JSON.

Source: open-telemetry/semantic-conventions-genai (gen_ai.output.messages: one message per choice, with parts
and finish_reason; status Development), and what clients of other conventions write: see
`sgpu.logs.rows.conventions`. The messages are an attribute of the span, or of the event
gen_ai.client.inference.operation.details, which is an event of the span or a log record; the attribute is
structured or a JSON string. Content is off by default: such spans are counted, not rejected.

The request id is <trace id>:<span id>, which the span and its event share; gen_ai.response.id is made by the
server and some servers use few numbers, so that it stands in only where there is no span.

Where two libraries trace one call, the span of one lies around that of the other: of the spans of one line
the inner one counts, which holds the response itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sgpu.logs.records import CallPart, Item, LogRecord, NoAnswer, Reason
from sgpu.logs.rows.answers import Request, assemble
from sgpu.logs.rows.conventions import GenAI, convention_of, sampling_of, unknown_content
from sgpu.logs.rows.fields import (
    RowFault,
    checked,
    identity_of,
    micros_of,
    needed_text,
    rejected,
    show_value,
    text_of,
    text_or_none,
)
from sgpu.logs.rows.telemetry import (
    CHOICE,
    DETAILS,
    MESSAGES,
    TelemetryEntry,
    above,
    answer_content,
    assembled,
    call_id_of,
    entries_of,
    is_telemetry,
    message_content,
    span_content,
)

ANSWERING = ("chat", "text_completion", "generate_content")
# What spans are marked with that are older than gen_ai.operation.name, or of another convention.
_MARKS = {
    "llm.request.type": ("chat", "completion"),
    "openinference.span.kind": ("LLM",),
    "langfuse.observation.type": ("generation",),
}
_MODELS = (
    "gen_ai.response.model", "gen_ai.request.model",
    "llm.response.model_name", "llm.model_name", "llm.request.model_name",
)  # fmt: skip


class OtelSpans:
    """OTLP lines of many spans or log records, and single ones."""

    name = "otel"

    def recognises(self, record: dict[str, Any]) -> bool:
        return is_telemetry(record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        if not is_telemetry(record) and "attributes" not in record:
            yield rejected(Reason.UNKNOWN_FORMAT, "neither a span nor a log record nor a line of OTLP")
            return
        try:
            entries = list(entries_of(record))
        except RecursionError:
            yield rejected(Reason.BAD_VALUE, "attributes are nested too deeply to be read")
            return
        if not entries:
            yield NoAnswer("no_spans")
        outer = above(filter(_is_answered, entries), entries)
        for entry in entries:
            if _asks_a_model(entry) and (entry.trace_id, entry.span_id) in outer:
                yield NoAnswer("outer_span")
            else:
                identity = _identity_fields(entry)
                yield checked(partial(_item, entry, identity), **identity)


def _asks_a_model(entry: TelemetryEntry) -> bool:
    operation = entry.attributes.get("gen_ai.operation.name")
    if operation is not None:
        return operation in ANSWERING
    if entry.name == DETAILS:
        return True
    marks = [entry.attributes[key] in words for key, words in _MARKS.items() if key in entry.attributes]
    return any(marks) or (not marks and not entry.is_log and _model(entry) is not None)


def _is_answered(entry: TelemetryEntry) -> bool:
    """Whether a span holds the answers of a model, and is not only around one that may hold them."""
    if entry.is_log or not _asks_a_model(entry):
        return False
    return convention_of(entry.attributes) is not None or any(name == CHOICE for name, _ in entry.events)


def _identity_fields(entry: TelemetryEntry) -> dict[str, Any]:
    return {
        "request_id": entry.call_id or entry.attributes.get("gen_ai.response.id"),
        "timestamp": entry.time,
        "model": _model(entry),
        "route": entry.route,
    }


def _item(entry: TelemetryEntry, identity: Mapping[str, Any]) -> Item:
    if entry.is_log and entry.name != DETAILS:
        return _event(entry)
    if not _asks_a_model(entry):
        return NoAnswer("other_span")
    convention = convention_of(entry.attributes)
    if convention is None:
        return _without_content(entry)
    request = Request(
        **identity_of(identity, "span id", "time of the span", "gen_ai.response.model"),
        answers=convention.answers(entry.attributes),
        question=convention.question(entry.attributes),
        n_requested=convention.n_requested(entry.attributes),
    )
    item = assemble(request)
    return replace(item, around=_around(entry)) if isinstance(item, LogRecord) else item


def _without_content(entry: TelemetryEntry) -> Item:
    """A span that asks a model and has no answer among its attributes: events may have it, or nobody."""
    parts = [_part_of_choice(entry, body) for name, body in entry.events if name == CHOICE]
    choices = [part for part in parts if part is not None]
    own_part = _part(entry)
    if choices and own_part is not None:
        return assembled(own_part.request_id, [own_part, *choices])
    if entry.failed or "error.type" in entry.attributes:
        raise RowFault(Reason.FAILED_REQUEST, "the span ended with an error and has no output")
    _refuse_unknown_content(entry)
    return NoAnswer("event_without_content" if entry.is_log else "span_without_content", own_part)


def _event(entry: TelemetryEntry) -> Item:
    """A log record that is not the event of details."""
    if entry.name == CHOICE:
        return _part_of_choice(entry, entry.attributes) or NoAnswer("event_without_content")
    if isinstance(entry.name, str) and entry.name in MESSAGES:
        call_id = text_of(entry.call_id, "trace and span id")
        content = message_content(MESSAGES[entry.name], entry.attributes)
        return NoAnswer("other_event", None if call_id is None else CallPart(call_id, content))
    if str(entry.name).startswith("gen_ai.") or _asks_a_model(entry):
        _refuse_unknown_content(entry)
    return NoAnswer("other_event")


def _part_of_choice(entry: TelemetryEntry, body: Mapping[str, Any]) -> CallPart | None:
    content = answer_content(body)
    if content is None:
        return None
    call_id = needed_text(entry.call_id, "trace and span id")
    time = micros_of(entry.time, "time of the event")
    return CallPart(call_id, content, time, route=text_of(entry.route, "route"))


def _part(entry: TelemetryEntry) -> CallPart | None:
    """What a span without content says of its call."""
    call_id = text_of(entry.call_id, "trace and span id")
    if call_id is None or entry.is_log:
        return None
    content = span_content(sampling_of(entry.attributes), GenAI().n_requested(entry.attributes))
    model = text_of(_model(entry), "gen_ai.response.model")
    return CallPart(call_id, content, None, model, text_of(entry.route, "route"), _around(entry))


def _around(entry: TelemetryEntry) -> str | None:
    """The request id that the span around this one would have; empty where none is named by a usable id."""
    return None if entry.is_log else text_or_none(call_id_of(entry.trace_id, entry.parent_id)) or ""


def _refuse_unknown_content(entry: TelemetryEntry) -> None:
    """Raises RowFault where there is what looks like an answer, under a name that no convention has."""
    contents = [(f"{name}.{key}", value) for name, event in entry.events for key, value in event.items()
                if str(name).startswith("gen_ai.")]  # fmt: skip
    name = unknown_content({**entry.attributes, **dict(contents)})
    if name is not None:
        raise RowFault(
            Reason.UNSUPPORTED,
            f"the call has content under {show_value(name)}, which is not of a convention that is read",
        )


def _model(entry: TelemetryEntry) -> Any:
    return next((entry.attributes[name] for name in _MODELS if entry.attributes.get(name)), None)
