"""An MLflow trace as it was written out, and the requests to models that are in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgpu.logs.records import Reason
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.fields import mapping_of
from sgpu.logs.rows.json_text import parsed

_MODEL_SPANS = ("CHAT_MODEL", "LLM")
_LABELS = ("correct", "correctness", "label")
_VALUES = {True: 1, False: 0, "yes": 1, "no": 0, "true": 1, "false": 0}
_FAILED = ("STATUS_CODE_ERROR", "ERROR")


@dataclass(frozen=True, slots=True)
class Call:
    """A span that asks a model. ``inputs`` and ``outputs`` are values, no longer MLflow's JSON."""

    span_id: str
    time: Any
    model: Any
    inputs: Any
    outputs: Any
    failed: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """``running``: it had not ended when it was written out. ``label``: 1 right, 0 wrong, None not known."""

    trace_id: str
    time: Any
    tags: dict[str, Any]
    running: bool
    label: int | None
    calls: list[Call]


def is_trace(record: Mapping[str, Any]) -> bool:
    """Whether the row is a trace: info and data, or the columns of a table of traces."""
    if "info" in record and "data" in record:
        return True
    return "spans" in record and ("trace_id" in record or "request_id" in record)


def trace_of(record: Mapping[str, Any]) -> Trace:
    """The trace of a row. Raises RowFault."""
    # A table of traces holds each as JSON too, which is exact; its columns of spans are not.
    whole = record if "data" in record else mapping_of(record.get("trace"))
    info = mapping_of(whole.get("info")) if whole else record
    spans = mapping_of(whole.get("data")).get("spans") if whole else record.get("spans")
    if not isinstance(spans, list):
        raise RowFault(Reason.MISSING_FIELD, "spans is missing")
    found = [one for one in spans if isinstance(one, Mapping)]
    tags = {**mapping_of(info.get("trace_metadata")), **_tags(info.get("tags"))}
    state = info.get("state", info.get("status"))
    trace_id = info.get("trace_id") or info.get("request_id")
    return Trace(
        trace_id=trace_id if isinstance(trace_id, str) else "",
        time=info.get("request_time", info.get("timestamp_ms")),
        tags=tags,
        running=state == "IN_PROGRESS",
        label=_label(info.get("assessments")),
        calls=[_call(one) for one in _innermost(found)],
    )


def _tags(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return {one["key"]: one.get("value") for one in value if isinstance(one.get("key"), str)}
    return mapping_of(value)


def _innermost(spans: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The spans of models that have none of their kind beneath them, in the order of the trace."""
    parent = {_span_id(one): _text(one.get("parent_span_id") or one.get("parent_id")) for one in spans}
    models = [one for one in spans if _kind(one) in _MODEL_SPANS]
    outer: set[str] = set()
    for one in models:
        above = parent[_span_id(one)]
        while above in parent and above not in outer:
            outer.add(above)
            above = parent[above]
    # A ring of spans has none that is innermost; then all of them are looked at.
    return [one for one in models if _span_id(one) not in outer] or models


def _call(span: Mapping[str, Any]) -> Call:
    outputs = _attribute(span, "mlflow.spanOutputs")
    return Call(
        span_id=_span_id(span),
        time=span.get("start_time_unix_nano", span.get("start_time")),
        model=_attribute(span, "mlflow.llm.model"),
        inputs=_attribute(span, "mlflow.spanInputs"),
        outputs=outputs if outputs not in ("", {}, []) else None,
        failed=_status(span) in _FAILED,
    )


def _attribute(span: Mapping[str, Any], name: str) -> Any:
    """MLflow writes the JSON of every attribute; text that is none is taken as it is."""
    value = mapping_of(span.get("attributes")).get(name)
    try:
        return parsed(value) if isinstance(value, str) else value
    except RowFault:
        return value


def _kind(span: Mapping[str, Any]) -> Any:
    kind = _attribute(span, "mlflow.spanType")
    return kind if isinstance(kind, str) else None


def _status(span: Mapping[str, Any]) -> Any:
    status = span.get("status")
    return status.get("code") if isinstance(status, Mapping) else span.get("status_code")


def _span_id(span: Mapping[str, Any]) -> str:
    return _text(span.get("span_id")) or _text(mapping_of(span.get("context")).get("span_id"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _label(assessments: Any) -> int | None:
    labels = []
    for place, one in enumerate(assessments if isinstance(assessments, list) else []):
        feedback = mapping_of(one.get("feedback")) if isinstance(one, Mapping) else {}
        value = feedback.get("value")
        value = value.lower() if isinstance(value, str) else value
        named = isinstance(one, Mapping) and one.get("assessment_name") in _LABELS
        if (
            named
            and one.get("valid") is not False
            and isinstance(value, bool | int | str)
            and value in _VALUES
        ):
            human = mapping_of(one.get("source")).get("source_type") == "HUMAN"
            labels.append((human, _text(one.get("create_time")), place, _VALUES[value]))
    return max(labels)[-1] if labels else None
