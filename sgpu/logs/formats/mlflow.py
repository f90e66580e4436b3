"""MLflow 3 traces, as `Trace.to_json` writes them and as rows of `mlflow.search_traces` (Parquet).

Source: mlflow.entities.Trace.to_dict. A trace is a tree of spans; those of type CHAT_MODEL or LLM are
requests, their outputs the provider's response as the library logged it. Where such a span lies within
another (two integrations that both log one call) the inner one counts: it holds the response itself.

The request id is <trace id>:<span id>, also where the trace has one request: how many it has is not known
while it grows. Labels are the trace's feedback named correct, correctness or label; a person's goes first.
A list of texts is a set of answers only where `n` of the inputs is its length: a function that gives one
answer in pieces logs a list too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sgpu.logs.records import Item, NoAnswer, Reason
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.fields import (
    RowFault,
    checked,
    count_of,
    identity_of,
    mapping_of,
    objects_in,
    parsed,
    rejected,
    text_of,
)
from sgpu.logs.rows.question import SAMPLING, LoggedQuestion, is_whole, question_of_body, refuse_several
from sgpu.logs.rows.telemetry import call_id_of

_MODEL_SPANS = ("CHAT_MODEL", "LLM")
_LABELS = ("correct", "correctness", "label")
_VALUES = {True: 1, False: 0, "yes": 1, "no": 0, "true": 1, "false": 0}
_FAILED = ("STATUS_CODE_ERROR", "ERROR")


@dataclass(frozen=True, slots=True)
class Trace:
    """What the calls of a trace share. ``running``: it had not ended when it was written out.

    ``label``: 1 right, 0 wrong, None not known. ``time`` and ``group_id`` are unchecked.
    """

    trace_id: str
    time: Any
    route: Any
    group_id: Any
    running: bool
    label: int | None


def is_trace(record: Mapping[str, Any]) -> bool:
    """Whether the row is a trace: info and data, or the columns of a table of traces."""
    if "info" in record and "data" in record:
        return True
    return "spans" in record and ("trace_id" in record or "request_id" in record)


def _tags(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and all(isinstance(tag, Mapping) for tag in value):
        return {tag["key"]: tag.get("value") for tag in value if isinstance(tag.get("key"), str)}
    return mapping_of(value)


def _innermost(spans: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The spans of models that have none of their kind beneath them, in the order of the trace."""
    parent = {_span_id(span): _text(span.get("parent_span_id") or span.get("parent_id")) for span in spans}
    models = [span for span in spans if _attribute(span, "mlflow.spanType") in _MODEL_SPANS]
    outer: set[str] = set()
    for span in models:
        above = parent[_span_id(span)]
        while above in parent and above not in outer:
            outer.add(above)
            above = parent[above]
    # A ring of spans has none that is innermost; then all of them are looked at.
    return [span for span in models if _span_id(span) not in outer] or models


def _attribute(span: Mapping[str, Any], name: str) -> Any:
    """MLflow writes the JSON of every attribute; text that is none is taken as it is."""
    value = mapping_of(span.get("attributes")).get(name)
    try:
        return parsed(value) if isinstance(value, str) else value
    except RowFault:
        return value


def _span_id(span: Mapping[str, Any]) -> str:
    return _text(span.get("span_id")) or _text(mapping_of(span.get("context")).get("span_id"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _label(assessments: Any) -> int | None:
    labels = []
    for position, assessment in enumerate(objects_in(assessments)):
        value = mapping_of(assessment.get("feedback")).get("value")
        value = value.lower() if isinstance(value, str) else value
        counts = assessment.get("assessment_name") in _LABELS and assessment.get("valid") is not False
        if counts and isinstance(value, bool | int | str) and value in _VALUES:
            human = mapping_of(assessment.get("source")).get("source_type") == "HUMAN"
            labels.append((human, _text(assessment.get("create_time")), position, _VALUES[value]))
    return max(labels)[-1] if labels else None


class MlflowTraces:
    """One item per request of a trace."""

    name = "mlflow"

    def recognises(self, record: dict[str, Any]) -> bool:
        return is_trace(record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        # A table of traces holds each as JSON too, which is exact; its columns of spans are not.
        whole = record if "data" in record else mapping_of(record.get("trace"))
        info = mapping_of(whole.get("info")) if whole else record
        spans = mapping_of(whole.get("data")).get("spans") if whole else record.get("spans")
        if not isinstance(spans, list):
            yield rejected(Reason.MISSING_FIELD, "spans is missing", request_id=record.get("trace_id"))
            return
        models = _innermost(objects_in(spans))
        tags = {**mapping_of(info.get("trace_metadata")), **_tags(info.get("tags"))}
        trace = Trace(
            trace_id=_text(info.get("trace_id") or info.get("request_id")),
            time=info.get("request_time", info.get("timestamp_ms")),
            route=tags.get("route"),
            group_id=tags.get("group_id"),
            running=info.get("state", info.get("status")) == "IN_PROGRESS",
            # Feedback is of the whole trace: with several requests it is not known which it judges.
            label=_label(info.get("assessments")) if len(models) == 1 else None,
        )
        for span in models:
            yield _call(trace, span)
        if not models:
            yield NoAnswer("unfinished" if trace.running else "trace_without_model_call")


def _call(trace: Trace, span: Mapping[str, Any]) -> Item:
    inputs, outputs = _attribute(span, "mlflow.spanInputs"), _attribute(span, "mlflow.spanOutputs")
    time = span.get("start_time_unix_nano", span.get("start_time"))
    named = mapping_of(outputs).get("model") or _attribute(span, "mlflow.llm.model")
    identity = {
        "request_id": call_id_of(trace.trace_id, _span_id(span)),
        "timestamp": trace.time if time is None else time,
        "model": named or mapping_of(inputs).get("model"),
        "route": trace.route,
    }
    return checked(partial(_item, trace, span, identity, inputs, outputs), **identity)


def _item(
    trace: Trace, span: Mapping[str, Any], identity: Mapping[str, Any], logged_inputs: Any, outputs: Any
) -> Item:
    if outputs in (None, "", {}, []):
        status = span.get("status")
        if (status.get("code") if isinstance(status, Mapping) else span.get("status_code")) in _FAILED:
            raise RowFault(Reason.FAILED_REQUEST, "the span ended with an error and has no output")
        return NoAnswer("unfinished" if trace.running else "span_without_content")
    inputs = mapping_of(logged_inputs)
    # LangChain logs its prompts without a name.
    refuse_several(inputs or {"prompts": logged_inputs})
    n_requested = count_of(inputs.get("n"), "n of the inputs")
    request = Request(
        **identity_of(identity, "trace id", "time of the span", route="the tag route"),
        answers=answers_of(outputs, n_requested),
        question=_question(trace, inputs, logged_inputs),
        n_requested=n_requested,
        label=trace.label,
    )
    return assemble(request)


def _question(trace: Trace, inputs: Mapping[str, Any], logged_inputs: Any) -> LoggedQuestion:
    question = question_of_body(inputs)
    if question.content is None and logged_inputs is not None:
        sampling = {key: inputs[key] for key in SAMPLING if key in inputs}
        content = {
            key: value for key, value in inputs.items() if key not in (*SAMPLING, "model", "seed", "n")
        }
        question = LoggedQuestion(content or logged_inputs, sampling, whole=is_whole(logged_inputs))
    return replace(question, group_id=text_of(trace.group_id, "the tag group_id") or question.group_id)
