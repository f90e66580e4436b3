"""Telemetry in JSON, made flat, and the calls that it writes in pieces.

Spans and log records of OTLP files and of the SDKs' own console form. OTLP/JSON: opentelemetry-proto
(`resourceSpans` and `resourceLogs` lines, attributes as lists of key and typed value, times as text of
nanoseconds). Console form: `ReadableSpan.to_json` of the Python SDK.

Pieces of a call: an event for each answer and each message of the question, a span. Events of openai-v2 2.1b0
and of OpenLLMetry: `gen_ai.choice` with index, `gen_ai.user.message` and its like. The span alone names the
model. All of a call share its trace and span id, and may stand in several lines and files; `assembled` makes
one request of them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sgpu.logs.records import CallPart, Item, Reason
from sgpu.logs.rows.answers import LoggedAnswer, Request, answers_of, assemble, read_answer_text
from sgpu.logs.rows.fields import RowFault, checked, objects_in, parsed, structured
from sgpu.logs.rows.question import LoggedQuestion, canonical, is_whole

_LINES = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
_MARKS = frozenset((*_LINES, "resourceMetrics"))
_HEX = re.compile(r"(?:[0-9a-fA-F]{16}){1,2}")
# Of 16 bytes and of 8.
_BASE64 = re.compile(r"[0-9A-Za-z+/]{22}==|[0-9A-Za-z+/]{11}=")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_SCALARS = ("stringValue", "boolValue", "doubleValue", "bytesValue")
DETAILS = "gen_ai.client.inference.operation.details"
CHOICE = "gen_ai.choice"
MESSAGES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


@dataclass(frozen=True, slots=True)
class TelemetryEntry:
    """A span or a log record. ``time`` as it was written; ``events``: name and attributes of each.

    The ids are "" where there is none. ``attributes``: with those of its event of details, where it has none
    of that name itself.
    """

    name: Any
    trace_id: str
    span_id: str
    parent_id: str
    time: Any
    is_log: bool
    failed: bool
    attributes: dict[str, Any]
    route: Any
    events: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    @property
    def call_id(self) -> str | None:
        """The request id of a call that this is, or that it belongs to."""
        return call_id_of(self.trace_id, self.span_id)


def is_telemetry(record: Mapping[str, Any]) -> bool:
    """Whether a row is a line of an OTLP file, or one span or log record."""
    if not _MARKS.isdisjoint(record):
        return True
    if isinstance(record.get("context"), Mapping):
        return "trace_id" in record["context"] and "attributes" in record
    return ("traceId" in record and "spanId" in record) or (
        "trace_id" in record and ("observed_timestamp" in record or "observedTimeUnixNano" in record)
    )


def entries_of(record: Mapping[str, Any]) -> Iterator[TelemetryEntry]:
    """All spans and log records of a row; none of a line of metrics."""
    nested = False
    for key, (scopes, leaves) in _LINES.items():
        for resource in objects_in(record.get(key)):
            shared = attributes_of(_object(resource.get("resource")).get("attributes"))
            for scope in objects_in(resource.get(scopes)):
                yield from (_entry(leaf, shared) for leaf in objects_in(scope.get(leaves)))
        nested |= key in record
    if not nested and "resourceMetrics" not in record:
        yield _entry(record, attributes_of(_object(record.get("resource")).get("attributes")))


def above(inner: Iterable[TelemetryEntry], entries: Iterable[TelemetryEntry]) -> set[tuple[str, str]]:
    """Trace and span id of every span that lies, at any depth, around one of ``inner``."""
    parents = {
        (entry.trace_id, entry.span_id): entry.parent_id
        for entry in entries
        if entry.span_id and not entry.is_log
    }
    outer: set[tuple[str, str]] = set()
    for entry in inner:
        start = entry.trace_id, entry.span_id
        if start in outer:
            continue  # the walk that came here went on to the top
        ancestor = entry.trace_id, parents.get(start, "")
        # Of spans that stand in a ring the first is not around itself.
        while ancestor in parents and ancestor not in outer and ancestor != start:
            outer.add(ancestor)
            ancestor = entry.trace_id, parents[ancestor]
    return outer


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes as a plain object, from OTLP's list of key and typed value or from an object."""
    if isinstance(value, Mapping):
        return dict(value)
    pairs = ((attribute.get("key"), attribute.get("value")) for attribute in objects_in(value))
    return {key: _plain(typed) for key, typed in pairs if isinstance(key, str)}


def _entry(raw: Mapping[str, Any], resource: dict[str, Any]) -> TelemetryEntry:
    context, status = _object(raw.get("context")), _object(raw.get("status"))
    attributes = attributes_of(raw.get("attributes"))
    name = raw.get("name") or raw.get("eventName") or raw.get("event_name") or attributes.get("event.name")
    keys = ("startTimeUnixNano", "start_time", "timeUnixNano", "timestamp", "observedTimeUnixNano",
            "observed_timestamp")  # fmt: skip
    # 0 is how the protocol writes that a time is not known.
    time = next((raw[key] for key in keys if raw.get(key) not in (None, "", 0, "0")), None)
    # An event's content was first its body; it is an attribute now.
    attributes = {**_body(raw.get("body")), **attributes}
    events = [
        (event.get("name"), attributes_of(event.get("attributes"))) for event in objects_in(raw.get("events"))
    ]
    details = next((values for name, values in events if name == DETAILS), {})
    return TelemetryEntry(
        name=name,
        trace_id=_id(raw.get("traceId") or raw.get("trace_id") or context.get("trace_id")),
        span_id=_id(raw.get("spanId") or raw.get("span_id") or context.get("span_id")),
        parent_id=_id(raw.get("parentSpanId") or raw.get("parent_span_id") or raw.get("parent_id")),
        time=time,
        is_log="startTimeUnixNano" not in raw and "start_time" not in raw,
        failed=status.get("code", status.get("status_code")) in (2, "STATUS_CODE_ERROR", "ERROR"),
        attributes={**details, **attributes},
        route=attributes.get("route") or resource.get("service.name"),
        events=events,
    )


def _body(value: Any) -> dict[str, Any]:
    body = _plain(value) if isinstance(value, Mapping) and "kvlistValue" in value else value
    return dict(body) if isinstance(body, Mapping) else {}


def _plain(typed: Any) -> Any:
    """The value of an OTLP AnyValue."""
    if not isinstance(typed, Mapping):
        return None
    for kind in _SCALARS:
        if kind in typed:
            return typed[kind]
    if "intValue" in typed:
        number = typed["intValue"]  # 64 bits are text in the protocol's JSON
        return int(number) if isinstance(number, str) and _INTEGER.fullmatch(number) else number
    if "arrayValue" in typed:
        return [_plain(item) for item in objects_in(_object(typed["arrayValue"]).get("values"))]
    if "kvlistValue" in typed:
        return attributes_of(_object(typed["kvlistValue"]).get("values"))
    return None


def _id(value: Any) -> str:
    """In hexadecimal: exporters write it in either case, and the protocol buffers' own JSON has base64."""
    text = value.removeprefix("0x") if isinstance(value, str) else ""
    if _BASE64.fullmatch(text):
        text = base64.b64decode(text).hex()
    if not text.strip("0"):
        return ""  # zeros are how an id that is not there is written
    return text.lower() if _HEX.fullmatch(text) else text


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def answer_content(body: Mapping[str, Any]) -> str | None:
    """The answer of a `gen_ai.choice`, as content of a `CallPart`; None where it was not captured.

    Raises RowFault.
    """
    message = structured(body.get("message"))
    calls = body.get("tool_calls")
    if not isinstance(message, Mapping) or (not message.get("content") and not message.get("tool_calls")):
        if not calls:
            return None
        message = {"tool_calls": calls}
    choice = {**body, "message": {**message, **({"tool_calls": calls} if calls else {})}}
    (answer,) = answers_of({"choices": [choice]})
    if not isinstance(answer.index, int):
        raise RowFault(Reason.MISSING_FIELD, "the index of an answer is missing")
    text = read_answer_text(answer.text, answer.index)
    return canonical(
        {"answer": [answer.index, text, answer.finish_reason, answer.refused, answer.called_tool]}
    )


def message_content(role: str, body: Mapping[str, Any]) -> str:
    """A message of the question, likewise."""
    message = {key: value for key, value in body.items() if "." not in key}  # the others are the event's own
    return canonical({"message": {"role": role, **message}})


def span_content(sampling: Mapping[str, Any], n_requested: int | None) -> str:
    """What the span says of the request, likewise."""
    return canonical({"sampling": sampling, "asked": n_requested})


def assembled(call_id: str, parts: Sequence[CallPart], models: Iterable[str] = ()) -> Item:
    """The request of its parts, in the order of the logs; at least one is an answer.

    ``models``: those of the spans beneath, which are asked where the call's own span is not there: a client
    that streams writes its events after the span has ended, with the id of the one around it.
    """
    about = {
        "request_id": call_id,
        "timestamp": min((part.timestamp for part in parts if part.timestamp is not None), default=None),
        "model": next((part.model for part in parts if part.model), None),
        "route": next((part.route for part in parts if part.route), None),
    }
    if about["model"] is None:
        beneath = set(models)
        about["model"] = beneath.pop() if len(beneath) == 1 else None
    return checked(lambda: _request(about, [parsed(part.content) for part in parts]), **about)


def _request(about: Mapping[str, Any], contents: Sequence[Mapping[str, Any]]) -> Item:
    if about["model"] is None:
        raise RowFault(Reason.MISSING_FIELD, "no span of this call in these logs names its model")
    unique = {json.dumps(part["answer"]): part["answer"] for part in contents if "answer" in part}
    answers = [
        LoggedAnswer(text, end, index, refused, called)
        for index, text, end, refused, called in unique.values()
    ]
    if len({answer.index for answer in answers}) != len(answers):
        raise RowFault(Reason.CONFLICT, "two events of this call give different answers of one index")
    span: Mapping[str, Any] = next((part for part in contents if "sampling" in part), {})
    messages = list({canonical(part): part["message"] for part in contents if "message" in part}.values())
    request = Request(
        answers=answers,
        question=LoggedQuestion(messages or None, span.get("sampling", {}), whole=is_whole(messages)),
        n_requested=span.get("asked"),
        **about,
    )
    return assemble(request)


def call_id_of(trace_id: str, span_id: str) -> str | None:
    """The request id of a call; None without either id."""
    return f"{trace_id}:{span_id}" if trace_id and span_id else None
