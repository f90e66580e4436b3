"""Telemetry: the fixture of a Collector's file, and what the OpenTelemetry SDK itself writes."""

from __future__ import annotations

import importlib
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from sgpu.logs.records import Item, LogRecord, NoAnswer, Reason, Rejected
from sgpu.scoring.sets.work_rows import around, table_of
from tests.scoring.log_fixtures import (
    CITIES,
    LATE_EVENING,
    fixture_rows,
    items_of,
    record_of,
    rejected_of,
    texts,
)

DETAILS = "gen_ai.client.inference.operation.details"
BASE = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


def messages(*answers: str, end: str = "stop") -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": end}
        for text in answers
    ]


def span(**attributes: Any) -> dict[str, Any]:
    """As the SDK's console exporter writes one."""
    named = {f"gen_ai.{key}".replace("__", "."): value for key, value in attributes.items()}
    return {
        "name": "chat m",
        "context": {"trace_id": "0x" + "a" * 32, "span_id": "0x" + "b" * 16},
        "start_time": "2026-11-20T23:59:01.000000Z",
        "attributes": {**BASE, **named},
        "events": [],
        "status": {"status_code": "UNSET"},
        "resource": {"attributes": {"service.name": "bot"}},
    }


@pytest.fixture(scope="module")
def found() -> list[Item]:
    return items_of("otel", *fixture_rows("otel"))


def test_answers_are_found_on_spans_on_their_events_and_on_log_records(found: list[Item]) -> None:
    records = [one for one in found if isinstance(one, LogRecord)]
    assert [texts(one) for one in records] == [
        CITIES,
        ("blue", "red"),
        ("Oslo", "Bergen"),
        ("Paris",),
        ("Rome", "Milan"),
    ]
    first = records[0]
    assert (first.timestamp, first.model, first.route) == (LATE_EVENING, "gpt-x-2026-08", "support-bot")
    assert first.request_id == "5b8efff798038103d269b633813fc60c:eee19b7ec3c1b170"


def test_a_span_without_content_and_its_event_with_it_are_one_request(found: list[Item]) -> None:
    assert NoAnswer("span_without_content") in found
    event = next(one for one in found if isinstance(one, LogRecord) and texts(one) == ("Rome", "Milan"))
    assert event.request_id.endswith(":eee19b7ec3c1b174")


def test_every_other_span_and_event_is_counted_or_refused(found: list[Item]) -> None:
    kinds = [one.kind for one in found if isinstance(one, NoAnswer)]
    assert kinds == ["span_without_content", "other_span", "other_span", "other_event", "no_spans"]
    refused = [one.reason for one in found if isinstance(one, Rejected)]
    assert refused == [Reason.FAILED_REQUEST, Reason.TOOL_CALL]


def test_the_question_is_kept_as_chat_messages(found: list[Item]) -> None:
    first = found[0]
    assert isinstance(first, LogRecord) and first.prompt is not None
    assert json.loads(first.prompt) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the capital of France?"},
    ]


def test_a_single_answer_with_its_question_can_be_grouped() -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "2 + 2?"}]}]
    grouped = [
        record_of(
            "otel", span(input__messages=asked, output__messages=messages(text), request__seed=seed)
        ).group_key
        for text, seed in (("4", 1), ("5", 2))
    ]
    assert grouped[0] == grouped[1] is not None
    several = span(input__messages=asked, output__messages=messages("4"))
    several["attributes"]["gen_ai.request.choice.count"] = 3
    assert rejected_of("otel", several).reason is Reason.TOO_FEW


@pytest.mark.parametrize("name", ["request.previous_response.id", "conversation.compacted"])
def test_a_question_whose_context_the_server_keeps_cannot_be_asked_again(name: str) -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "And then?"}]}]
    row = span(input__messages=asked, output__messages=messages("a", "b"))
    assert record_of("otel", row).prompt is not None
    row["attributes"][f"gen_ai.{name}"] = "resp_1" if "id" in name else True
    assert record_of("otel", row).prompt is None


def test_a_compacted_conversation_forms_no_set_with_others() -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "And then?"}]}]
    row = span(input__messages=asked, output__messages=messages("a"))
    assert record_of("otel", row).group_key is not None
    row["attributes"]["gen_ai.conversation.compacted"] = True
    assert rejected_of("otel", row).reason is Reason.TOO_FEW


def test_a_question_with_an_image_is_known_but_cannot_be_asked_again() -> None:
    parts = [{"type": "text", "content": "What is this?"}, {"type": "uri", "uri": "s3://b/k"}]
    row = span(input__messages=[{"role": "user", "parts": parts}], output__messages=messages("a", "b"))
    record = record_of("otel", row)
    assert record.prompt_sha256 is not None and record.prompt is None


def test_the_end_of_an_answer_may_stand_beside_the_messages() -> None:
    bare = [{"role": "assistant", "parts": [{"type": "text", "content": text}]} for text in "abc"]
    row = span(output__messages=bare)
    row["attributes"]["gen_ai.response.finish_reasons"] = ["stop", "content_filter", "length"]
    record = record_of("otel", row)
    assert texts(record) == ("a", "c") and record.dropped == ("content_filter",)


def test_finish_reasons_that_outnumber_the_messages_are_ignored() -> None:
    bare = [{"role": "assistant", "parts": [{"type": "text", "content": text}]} for text in "ab"]
    row = span(output__messages=bare)
    row["attributes"]["gen_ai.response.finish_reasons"] = ["error", "stop", "stop"]
    record = record_of("otel", row)
    assert texts(record) == ("a", "b") and record.dropped == ()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("not json", Reason.BAD_VALUE),
        ({"role": "assistant"}, Reason.BAD_VALUE),
        ([{"role": "assistant", "content": "Paris"}], Reason.MISSING_FIELD),
        ([{"role": "assistant", "parts": [{"type": "text", "content": 7}]}], Reason.BAD_VALUE),
    ],
)
def test_messages_of_another_shape_are_refused(output: Any, reason: Reason) -> None:
    rejected = rejected_of("otel", span(output__messages=output))
    assert rejected.reason is reason and "Paris" not in rejected.detail


def openinference(**attributes: Any) -> dict[str, Any]:
    """Return a span of OpenInference 0.1.42; underscores in pairs are dots."""
    row = span()
    named = {f"llm.{key}".replace("__", "."): value for key, value in attributes.items()}
    row["attributes"] = {"openinference.span.kind": "LLM", **named}
    return row


def test_the_model_that_answered_goes_before_the_one_that_was_asked_for() -> None:
    names = {"request__model_name": "asked", "model_name": "m", "response__model_name": "answered"}
    answers = {f"choices__{n}__completion__text": text for n, text in enumerate("ab")}
    while names:
        assert record_of("otel", openinference(**names, **answers)).model == names.popitem()[1]


def test_completions_of_openinference_are_answers_to_their_prompt() -> None:
    answers = {f"choices__{n}__completion__text": text for n, text in enumerate(CITIES)}
    asked = {"prompts__0__prompt__text": "Capital?", "model_name": "m"}
    record = record_of("otel", openinference(**asked, **answers))
    assert texts(record) == CITIES and record.prompt == '"Capital?"'
    several = openinference(**asked, **answers, prompts__1__prompt__text="River?")
    assert rejected_of("otel", several).detail == "the request asks 2 questions, not 1"


IDS = ("b" * 16, "c" * 16, "d" * 16)


def nested(*contents: list[dict[str, Any]] | None, ring: bool = False) -> dict[str, Any]:
    """A line of OTLP with a chat span in each scope, each around the next."""
    above = (IDS[len(contents) - 1] if ring else "", *IDS)
    scopes = [
        {"spans": [{
            "traceId": "a" * 32, "spanId": own, "parentSpanId": parent, "name": "chat m",
            "startTimeUnixNano": str(LATE_EVENING * 1000),
            "attributes": [
                {"key": key, "value": {"stringValue": value}}
                for key, value in {**BASE, "gen_ai.output.messages": content and json.dumps(content)}.items()
            ],
        }]}
        for own, parent, content in zip(IDS, above, contents, strict=False)
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [scope]} for scope in scopes]}


def test_of_spans_around_one_call_the_innermost_counts() -> None:
    outer, middle, inner = items_of("otel", nested(*[messages("a", "b")] * 3))
    assert (outer, middle) == (NoAnswer("outer_span"), NoAnswer("outer_span"))
    assert texts(inner) == ("a", "b") and isinstance(inner, LogRecord)
    assert inner.request_id.endswith(IDS[2])


def test_a_span_around_one_without_content_counts_itself() -> None:
    outer, inner = items_of("otel", nested(messages("a", "b"), None))
    assert texts(outer) == ("a", "b") and inner == NoAnswer("span_without_content")


def test_of_spans_in_a_ring_one_is_left() -> None:
    found = items_of("otel", nested(messages("a", "b"), messages("a", "b"), ring=True))
    assert len([one for one in found if isinstance(one, LogRecord)]) == 1
    (alone,) = items_of("otel", nested(messages("a", "b"), ring=True))
    assert texts(alone) == ("a", "b")


def test_the_case_of_a_hexadecimal_id_makes_no_second_request() -> None:
    row = span(output__messages=messages("a", "b"))
    lower = record_of("otel", row).request_id
    row["context"] = {"trace_id": "0x" + "A" * 32, "span_id": "0x" + "B" * 16}
    assert record_of("otel", row).request_id == lower == f"{'a' * 32}:{'b' * 16}"


def test_one_span_in_hexadecimal_and_in_base64_is_one_request() -> None:
    row = span(output__messages=messages("a", "b"))
    trace, own = bytes(range(16, 32)), bytes(range(200, 208))
    row["context"] = {"trace_id": f"0x{trace.hex()}", "span_id": f"0x{own.hex()}"}
    hexadecimal = record_of("otel", row)
    row["context"] = {"trace_id": b64encode(trace).decode(), "span_id": b64encode(own).decode()}
    assert record_of("otel", row) == hexadecimal and hexadecimal.request_id == f"{trace.hex()}:{own.hex()}"


@pytest.mark.parametrize("number", ["--5", "-", "", "9" * 5000, "\u0663", "1_0", " 7"])
def test_a_number_that_is_none_stays_text_and_harms_no_span(number: str) -> None:
    line = nested(messages("a", "b"))
    attributes = line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    attributes.append({"key": "x", "value": {"intValue": number}})
    assert texts(items_of("otel", line)[0]) == ("a", "b")
    attributes.append({"key": "gen_ai.request.choice.count", "value": {"intValue": number}})
    refused = rejected_of("otel", line)
    assert refused.reason is Reason.BAD_VALUE and "gen_ai.request.choice.count is" in refused.detail


def test_a_span_around_with_an_id_that_is_no_text_is_none_and_harms_no_span() -> None:
    line = nested(messages("a", "b"))
    (one,) = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for parent, told in (("\ud800", ""), ("b" * 16, f"{'a' * 32}:{'b' * 16}")):
        one["parentSpanId"] = parent
        record = record_of("otel", line)
        assert record.around == told and texts(record) == ("a", "b")
        table_of(around(record))


def test_an_id_of_zeros_is_none() -> None:
    row = span(output__messages=messages("a", "b"), response__id="chatcmpl-1")
    row["context"] = {"trace_id": "0x" + "0" * 32, "span_id": "0x" + "0" * 16}
    assert record_of("otel", row).request_id == "chatcmpl-1"


@pytest.fixture
def tracing() -> Iterator[tuple[Any, Any]]:
    """A tracer of the SDK, and the exporter that keeps what it has finished."""
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    memory = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    resources = importlib.import_module("opentelemetry.sdk.resources")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": "bot"}))
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test"), exporter
    provider.shutdown()


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("on_event", [False, True])
def test_what_the_sdk_writes_is_read(tracing: tuple[Any, Any], structured: bool, on_event: bool) -> None:
    encoder = importlib.import_module("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    json_format = importlib.import_module("google.protobuf.json_format")
    tracer, exporter = tracing
    output = messages(*CITIES) if structured else json.dumps(messages(*CITIES))
    content = {"gen_ai.output.messages": output, "gen_ai.request.choice.count": 4}
    with tracer.start_as_current_span("chat m", attributes=BASE) as current:
        current.add_event(DETAILS, content) if on_event else current.set_attributes(content)
    (finished,) = exporter.get_finished_spans()
    line = json_format.MessageToDict(encoder.encode_spans([finished]))
    for row in (json.loads(finished.to_json()), line):
        record = record_of("otel", row)
        assert texts(record) == CITIES and record.route == "bot" and record.model == "m"
        assert abs(record.timestamp - finished.start_time / 1000) <= 1  # the console form rounds


def test_an_event_that_the_sdk_logs_has_the_id_of_its_span(tracing: tuple[Any, Any]) -> None:
    logs = importlib.import_module("opentelemetry.sdk._logs")
    export = importlib.import_module("opentelemetry.sdk._logs.export")
    api = importlib.import_module("opentelemetry._logs")
    tracer, exporter = tracing
    kept = export.InMemoryLogRecordExporter()
    provider = logs.LoggerProvider()
    provider.add_log_record_processor(export.SimpleLogRecordProcessor(kept))
    content = {**BASE, "gen_ai.output.messages": messages("a", "b")}
    with tracer.start_as_current_span("chat m", attributes=BASE):
        event = api.LogRecord(timestamp=LATE_EVENING * 1000, event_name=DETAILS, attributes=content)
        provider.get_logger("test").emit(event)
    (logged,), (finished,) = kept.get_finished_logs(), exporter.get_finished_spans()
    record = record_of("otel", json.loads(logged.to_json()))
    assert texts(record) == ("a", "b") and record.timestamp == LATE_EVENING
    context = json.loads(finished.to_json())["context"]
    assert record.request_id == f"{context['trace_id'][2:]}:{context['span_id'][2:]}"
    provider.shutdown()
