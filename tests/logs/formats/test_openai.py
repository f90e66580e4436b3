"""OpenAI responses: the fixture, and what the `openai` package's own types write."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from sgpu.logs.records import LogRecord, NoAnswer, Reason, Rejected
from tests.scoring.log_fixtures import (
    CITIES,
    LATE_EVENING,
    fixture_rows,
    items_of,
    record_of,
    rejected_of,
    texts,
)


def test_the_fixture_is_read_as_a_person_reads_it() -> None:
    chat, one, tools, refused, filtered, completion, response = items_of("openai", *fixture_rows("openai"))
    assert texts(chat) == CITIES
    assert isinstance(chat, LogRecord)
    assert (chat.request_id, chat.timestamp, chat.model, chat.route) == (
        "chatcmpl-1", LATE_EVENING, "gpt-x-2026-08", "support-bot",
    )  # fmt: skip
    reasons = [found.reason for found in (one, tools, refused) if isinstance(found, Rejected)]
    assert reasons == [Reason.TOO_FEW, Reason.TOO_FEW, Reason.REFUSAL]
    assert texts(filtered) == ("a", "b")
    assert isinstance(filtered, LogRecord) and filtered.dropped == ("content_filter",)
    assert texts(completion) == (" Paris", " Paris.")
    assert texts(response) == ("Paris",)
    assert isinstance(response, LogRecord) and response.group_key is not None


def test_what_the_package_writes_of_a_chat_completion_is_read() -> None:
    chat = importlib.import_module("openai.types.chat")
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        for i, text in reversed(list(enumerate(CITIES)))
    ]
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1_795_219_141,
        "model": "m",
        "choices": choices,
    }
    written = chat.ChatCompletion.model_validate(body)
    for text in (written.to_json(), written.model_dump_json(), written.model_dump_json(exclude_none=True)):
        assert texts(record_of("openai", json.loads(text))) == CITIES


def test_a_tool_call_that_the_package_writes_is_left_out() -> None:
    chat = importlib.import_module("openai.types.chat")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I look it up.", "tool_calls": [call]}
    choices = [{"index": i, "finish_reason": "tool_calls", "message": message} for i in range(3)]
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    written = chat.ChatCompletion.model_validate(body).to_json()
    assert rejected_of("openai", json.loads(written)).reason is Reason.TOOL_CALL


def response(**changes: Any) -> dict[str, Any]:
    body = next(row for row in fixture_rows("openai") if row["object"] == "response")
    return {**body, **changes}


def test_a_response_without_group_id_has_no_second_answer() -> None:
    assert rejected_of("openai", response(metadata={})).reason is Reason.TOO_FEW


def test_a_response_that_failed_is_refused_and_one_that_runs_is_counted() -> None:
    failed = response(status="failed", error={"code": "server_error", "message": "secret"}, output=[])
    rejected = rejected_of("openai", failed)
    assert rejected.reason is Reason.FAILED_REQUEST
    assert "server_error" in rejected.detail and "secret" not in rejected.detail
    assert items_of("openai", response(status="in_progress", output=[])) == [NoAnswer("unfinished")]


@pytest.mark.parametrize("field", ["id", "created", "model", "choices"])
def test_each_required_field_is_named_when_it_is_missing(field: str) -> None:
    body = fixture_rows("openai")[0]
    del body[field]
    rejected = rejected_of("openai", body)
    expected = Reason.UNKNOWN_FORMAT if field == "choices" else Reason.MISSING_FIELD
    assert rejected.reason is expected
