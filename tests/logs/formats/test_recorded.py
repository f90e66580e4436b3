"""Telemetry of real clients: every call that was answered becomes a request, by whatever names."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sgpu.logs.records import CallPart, Item, LogRecord, NoAnswer, Reason, Rejected
from sgpu.logs.rows.telemetry import assembled
from tests.scoring.fixtures.recorded.record_telemetry import CALLS, answer
from tests.scoring.log_fixtures import fixture_rows, items_of, rejected_of, texts

ATTRIBUTES = ("openinference", "openllmetry_0_40")
EVENTS = ("openllmetry_events", "openai_v2_events")
WANTED = {
    question: tuple(answer(question, i) for i in range(n)) for question, n, _ in CALLS if question != "fail"
}


def calls_of(items: list[Item]) -> list[Item]:
    """The requests of parts, as the night joins them."""
    parts: dict[str, list[CallPart]] = {}
    answered: list[str] = []
    beneath: dict[str, list[str]] = {}
    for item in items:
        part = item if isinstance(item, CallPart) else item.part if isinstance(item, NoAnswer) else None
        if part is not None:
            parts.setdefault(part.request_id, []).append(part)
            answered += [part.request_id] if isinstance(item, CallPart) else []
            beneath.setdefault(part.around or "", []).append(part.model or "")
    return [assembled(one, parts[one], beneath.get(one, ())) for one in dict.fromkeys(answered)]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_answers_under_the_names_of_a_client_are_read_with_question_and_model(name: str) -> None:
    found = items_of("otel", *fixture_rows(name))
    records = [one for one in found if isinstance(one, LogRecord)]
    assert [texts(one) for one in records] == list(WANTED.values())
    assert {(one.model, one.route) for one in records} == {("m-2026", "bot")}
    asked = [json.loads(one.prompt or "") for one in records]
    assert [one[-1]["content"] for one in asked] == list(WANTED) and asked[0][0]["content"] == "Be brief."
    assert [one.group_key is not None for one in records] == [len(one) == 1 for one in WANTED.values()]
    (failed,) = (one for one in found if isinstance(one, Rejected))
    assert failed.reason is Reason.FAILED_REQUEST
    assert Counter(one.kind for one in found if isinstance(one, NoAnswer)) == {"other_span": len(CALLS)}


@pytest.mark.parametrize("name", EVENTS)
def test_events_of_a_call_become_one_request_with_the_model_of_its_span(name: str) -> None:
    made = calls_of(items_of("otel", *fixture_rows(name)))
    assert sorted(map(texts, made)) == sorted(WANTED.values())
    records = {texts(one): one for one in made if isinstance(one, LogRecord)}
    assert {(one.model, one.route) for one in records.values()} == {("m-2026", "bot")}
    first = records[WANTED["capital of France"]]
    assert [one["content"] for one in json.loads(first.prompt or "")] == ["Be brief.", "capital of France"]
    assert records[WANTED["capital of Chile"]].group_key is not None


def test_the_order_in_which_events_come_changes_nothing() -> None:
    items = items_of("otel", *fixture_rows("openai_v2_events"))
    turned = calls_of(items[::-1])
    assert {texts(one) for one in turned} == set(WANTED.values())


def test_events_that_contradict_each_other_are_no_request() -> None:
    parts = [
        CallPart("t:s", json.dumps({"answer": [0, text, "stop", False, False]}), 1, "m") for text in "ab"
    ]
    item = assembled("t:s", parts)
    assert isinstance(item, Rejected) and item.reason is Reason.CONFLICT


def test_a_call_without_a_span_says_that_its_model_is_not_known() -> None:
    rows = [row for row in fixture_rows("openai_v2_events") if "event.name" in str(row.get("attributes"))]
    made = calls_of(items_of("otel", *rows))
    assert made and {one.reason for one in made if isinstance(one, Rejected)} == {Reason.MISSING_FIELD}
    assert all("names its model" in one.detail for one in made if isinstance(one, Rejected))


def unknown(**attributes: Any) -> dict[str, Any]:
    return {
        "name": "call",
        "context": {"trace_id": "0x" + "a" * 32, "span_id": "0x" + "b" * 16},
        "start_time": "2026-11-20T23:59:01.000000Z",
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "events": [],
        "status": {"status_code": "UNSET"},
    }


@pytest.mark.parametrize(
    "name", ["ai__response__text", "langfuse__observation__output", "gen_ai__completion", "llm__response"]
)
def test_content_under_a_name_that_is_not_known_is_refused_by_that_name(name: str) -> None:
    row = unknown(gen_ai__request__model="m", **{name: '{"text": "secret"}'})
    refused = rejected_of("otel", row)
    assert refused.reason is Reason.UNSUPPORTED
    assert name.replace("__", ".") in refused.detail and "secret" not in refused.detail


def test_content_on_an_event_of_another_name_is_refused() -> None:
    row = unknown(gen_ai__operation__name="chat", gen_ai__request__model="m")
    row["events"] = [{"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": "[]x"}}]
    assert rejected_of("otel", row).reason is Reason.UNSUPPORTED


def test_what_says_only_how_a_call_went_is_no_content() -> None:
    row = unknown(
        gen_ai__operation__name="chat", gen_ai__request__model="m", gen_ai__response__model="m-1",
        gen_ai__response__id="chatcmpl-1", gen_ai__response__finish_reasons=["stop"],
        gen_ai__output__type="text", gen_ai__usage__output_tokens=5, llm__headers="None",
        gen_ai__openai__response__system_fingerprint="fp_1", gen_ai__openai__response__service_tier="default",
        gen_ai__prompt__0__content="a question", http__response__body="no answer of a model",
    )  # fmt: skip
    assert items_of("otel", row) == [NoAnswer("span_without_content")]


def test_a_choice_that_is_an_event_of_its_span_is_read_with_it() -> None:
    row = unknown(gen_ai__operation__name="chat", gen_ai__request__model="m")
    row["events"] = [
        {"name": "gen_ai.choice", "attributes": {"index": i, "message": {"content": text}}}
        for i, text in enumerate("ab")
    ]
    for event in row["events"]:
        event["timestamp"] = "2026-11-20T23:59:02Z"
    assert [texts(one) for one in items_of("otel", row)] == [("a", "b")]
