"""OpenTelemetry GenAI spans and events, as exporters write them in JSON.

Source: open-telemetry/semantic-conventions-genai (gen_ai.output.messages: one message per choice, with parts
and finish_reason; status Development). The messages are an attribute of the span, or of the event
gen_ai.client.inference.operation.details, which is an event of the span or a log record; the attribute is
structured or a JSON string. Content is off by default: such spans are counted, not rejected.

The request id is <trace id>:<span id>, which the span and its event share; gen_ai.response.id is made by the
server and some servers use few numbers, so that it stands in only where there is no span.

Where two libraries trace one call, the span of one lies around that of the other: of the spans of one line
the inner one counts, which holds the response itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from sgpu.scoring.records import Item, NoAnswer, Reason
from sgpu.scoring.rows.assembly import Answer, Request, assemble
from sgpu.scoring.rows.clock import micros_of
from sgpu.scoring.rows.fault import RowFault
from sgpu.scoring.rows.fields import checked, count_of, needed_text, rejected, text_of
from sgpu.scoring.rows.json_text import structured
from sgpu.scoring.rows.otel_messages import output_answers, question_of
from sgpu.scoring.rows.spans import Entry, above, entries_of, is_telemetry

DETAILS = "gen_ai.client.inference.operation.details"
ANSWERING = ("chat", "text_completion", "generate_content")


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
            found = [(entry, _with_details(entry)) for entry in entries_of(record)]
        except RecursionError:
            yield rejected(Reason.BAD_VALUE, "attributes are nested too deeply to be read")
            return
        if not found:
            yield NoAnswer("no_spans")
        answered = [entry for entry, attributes in found if _is_answered(entry, attributes)]
        outer = above(answered, [entry for entry, _ in found])
        for entry, attributes in found:
            if _asks_a_model(entry, attributes) and (entry.trace_id, entry.span_id) in outer:
                yield NoAnswer("outer_span")
            else:
                yield checked(partial(_item, entry, attributes), **_known_of(entry, attributes))


def _with_details(entry: Entry) -> dict[str, Any]:
    """The attributes of a span, with those of its event of details where the span has none of that name."""
    details = next((attributes for name, attributes in entry.events if name == DETAILS), {})
    return {**details, **entry.attributes}


def _asks_a_model(entry: Entry, attributes: Mapping[str, Any]) -> bool:
    operation = attributes.get("gen_ai.operation.name")
    return operation in ANSWERING or (operation is None and entry.name == DETAILS)


def _is_answered(entry: Entry, attributes: Mapping[str, Any]) -> bool:
    """Whether a span holds the answers of a model, and is not only around one that may hold them."""
    output = attributes.get("gen_ai.output.messages")
    return not entry.is_log and output not in (None, "", "[]", []) and _asks_a_model(entry, attributes)


def _known_of(entry: Entry, attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "request_id": _request_id(entry, attributes),
        "timestamp": entry.time,
        "model": _model(attributes),
        "route": _route(entry),
    }


def _item(entry: Entry, attributes: Mapping[str, Any]) -> Item:
    if entry.is_log and entry.name != DETAILS:
        return NoAnswer("other_event")
    if not _asks_a_model(entry, attributes):
        return NoAnswer("other_span")
    output = structured(attributes.get("gen_ai.output.messages"))
    if not output:
        if entry.failed or "error.type" in attributes:
            raise RowFault(Reason.FAILED_REQUEST, "the span ended with an error and has no output")
        return NoAnswer("event_without_content" if entry.is_log else "span_without_content")
    request = Request(
        request_id=needed_text(_request_id(entry, attributes), "span id"),
        timestamp=micros_of(entry.time, "time of the span"),
        model=needed_text(_model(attributes), "gen_ai.response.model"),
        route=text_of(_route(entry), "route"),
        answers=_answers(output, attributes),
        question=question_of(attributes),
        asked=count_of(attributes.get("gen_ai.request.choice.count"), "gen_ai.request.choice.count"),
    )
    return assemble(request)


def _answers(output: Any, attributes: Mapping[str, Any]) -> list[Answer]:
    return output_answers(output, structured(attributes.get("gen_ai.response.finish_reasons")))


def _request_id(entry: Entry, attributes: Mapping[str, Any]) -> Any:
    if entry.trace_id and entry.span_id:
        return f"{entry.trace_id}:{entry.span_id}"
    return attributes.get("gen_ai.response.id")


def _model(attributes: Mapping[str, Any]) -> Any:
    return attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")


def _route(entry: Entry) -> Any:
    return entry.attributes.get("route") or entry.resource.get("service.name")
