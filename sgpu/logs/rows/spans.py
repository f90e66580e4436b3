"""Telemetry in JSON, made flat: spans and log records of OTLP files and of the SDKs' own console form.

OTLP/JSON: opentelemetry-proto (`resourceSpans` and `resourceLogs` lines, attributes as lists of key and typed
value, times as text of nanoseconds). Console form: `ReadableSpan.to_json` of the Python SDK.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_LINES = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
_MARKS = frozenset((*_LINES, "resourceMetrics"))
_HEX = re.compile(r"(?:[0-9a-fA-F]{16}){1,2}")
# Of 16 bytes and of 8.
_BASE64 = re.compile(r"[0-9A-Za-z+/]{22}==|[0-9A-Za-z+/]{11}=")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_SCALARS = ("stringValue", "boolValue", "doubleValue", "bytesValue")


@dataclass(frozen=True, slots=True)
class Entry:
    """A span or a log record. ``time`` as it was written; ``events``: name and attributes of each.

    The ids are "" where there is none.
    """

    name: Any
    trace_id: str
    span_id: str
    parent_id: str
    time: Any
    is_log: bool
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)


def is_telemetry(record: Mapping[str, Any]) -> bool:
    """Whether a row is a line of an OTLP file, or one span or log record."""
    if not _MARKS.isdisjoint(record):
        return True
    if isinstance(record.get("context"), Mapping):
        return "trace_id" in record["context"] and "attributes" in record
    return ("traceId" in record and "spanId" in record) or (
        "trace_id" in record and ("observed_timestamp" in record or "observedTimeUnixNano" in record)
    )


def entries_of(record: Mapping[str, Any]) -> Iterator[Entry]:
    """All spans and log records of a row; none of a line of metrics."""
    nested = False
    for key, (scopes, leaves) in _LINES.items():
        for resource in _objects(record.get(key)):
            shared = attributes_of(_object(resource.get("resource")).get("attributes"))
            for scope in _objects(resource.get(scopes)):
                yield from (_entry(leaf, shared) for leaf in _objects(scope.get(leaves)))
        nested |= key in record
    if not nested and "resourceMetrics" not in record:
        yield _entry(record, attributes_of(_object(record.get("resource")).get("attributes")))


def above(inner: Iterable[Entry], entries: Iterable[Entry]) -> set[tuple[str, str]]:
    """Trace and span id of every span that lies, at any depth, around one of ``inner``."""
    parents = {
        (one.trace_id, one.span_id): one.parent_id for one in entries if one.span_id and not one.is_log
    }
    outer: set[tuple[str, str]] = set()
    for one in inner:
        start = one.trace_id, one.span_id
        if start in outer:
            continue  # the walk that came here went on to the top
        here = one.trace_id, parents.get(start, "")
        # Of spans that stand in a ring the first is not around itself.
        while here in parents and here not in outer and here != start:
            outer.add(here)
            here = one.trace_id, parents[here]
    return outer


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes as a plain object, from OTLP's list of key and typed value or from an object."""
    if isinstance(value, Mapping):
        return dict(value)
    pairs = ((one.get("key"), one.get("value")) for one in _objects(value))
    return {key: _plain(typed) for key, typed in pairs if isinstance(key, str)}


def _entry(raw: Mapping[str, Any], resource: dict[str, Any]) -> Entry:
    context = _object(raw.get("context"))
    attributes = attributes_of(raw.get("attributes"))
    name = raw.get("name") or raw.get("eventName") or raw.get("event_name") or attributes.get("event.name")
    keys = ("startTimeUnixNano", "start_time", "timeUnixNano", "timestamp", "observedTimeUnixNano",
            "observed_timestamp")  # fmt: skip
    # 0 is how the protocol writes that a time is not known.
    time = next((raw[key] for key in keys if raw.get(key) not in (None, "", 0, "0")), None)
    return Entry(
        name=name,
        trace_id=_id(raw.get("traceId") or raw.get("trace_id") or context.get("trace_id")),
        span_id=_id(raw.get("spanId") or raw.get("span_id") or context.get("span_id")),
        parent_id=_id(raw.get("parentSpanId") or raw.get("parent_span_id") or raw.get("parent_id")),
        time=time,
        is_log="startTimeUnixNano" not in raw and "start_time" not in raw,
        failed=_failed(_object(raw.get("status"))),
        # An event's content was first its body; it is an attribute now.
        attributes={**_body(raw.get("body")), **attributes},
        resource=resource,
        events=[
            (one.get("name"), attributes_of(one.get("attributes"))) for one in _objects(raw.get("events"))
        ],
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
        return [_plain(one) for one in _objects(_object(typed["arrayValue"]).get("values"))]
    if "kvlistValue" in typed:
        return attributes_of(_object(typed["kvlistValue"]).get("values"))
    return None


def _failed(status: Mapping[str, Any]) -> bool:
    return status.get("code", status.get("status_code")) in (2, "STATUS_CODE_ERROR", "ERROR")


def _id(value: Any) -> str:
    """In hexadecimal: exporters write it in either case, and the protocol buffers' own JSON has base64."""
    found = value.removeprefix("0x") if isinstance(value, str) else ""
    if _BASE64.fullmatch(found):
        found = base64.b64decode(found).hex()
    if not found.strip("0"):
        return ""  # zeros are how an id that is not there is written
    return found.lower() if _HEX.fullmatch(found) else found


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
