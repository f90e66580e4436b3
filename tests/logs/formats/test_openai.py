"""OpenAI responses: the fixture, and what the `openai` package's own types write."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from sgpu.logs.records import BatchPrompt, LogRecord, NoAnswer, Reason, Rejected
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


def prompts() -> dict[str, BatchPrompt]:
    found = items_of("openai_batch", *fixture_rows("openai_batch_input"))
    return {one.join_key: one for one in found if isinstance(one, BatchPrompt)}


def test_an_input_line_becomes_a_prompt() -> None:
    first = prompts()["q-1"]
    assert (first.model, first.route, first.group_key, first.fault) == ("gpt-x", "support-bot", None, None)
    assert first.prompt is not None
    assert json.loads(first.prompt) == [{"role": "user", "content": "What is the capital of France?"}]


def test_requests_for_one_answer_to_one_question_share_a_group() -> None:
    found = prompts()
    assert found["q-2"].group_key == found["q-3"].group_key is not None
    assert found["q-4"].group_key is None  # two answers were asked for


def test_a_request_with_several_questions_says_that_its_answers_are_no_set() -> None:
    found = prompts()["q-5"]
    assert found.fault == "the request asks 2 questions, not 1"


def test_one_prompt_of_token_numbers_is_one_question() -> None:
    line = {"custom_id": "t", "url": "/v1/completions", "body": {"model": "m", "prompt": [1, 2, 3], "n": 2}}
    (found,) = items_of("openai_batch", line)
    assert isinstance(found, BatchPrompt) and found.fault is None


def test_output_lines_become_records_with_the_key_of_their_question() -> None:
    late, first, second, *_ = items_of("openai_batch", *fixture_rows("openai_batch_output"))
    assert isinstance(late, LogRecord) and isinstance(first, LogRecord) and isinstance(second, LogRecord)
    assert [one.join_key for one in (late, first, second)] == ["q-3", "q-1", "q-2"]
    assert texts(first) == CITIES and texts(late) == ("Lyon",)
    assert late.group_key is None  # the question stands in the other file
    assert first.request_id == "chatcmpl-b1"


def test_failed_lines_say_which_question_they_answer() -> None:
    found = items_of("openai_batch", *fixture_rows("openai_batch_output"))
    failed = [one for one in found if isinstance(one, Rejected)]
    assert [(one.reason, one.join_key) for one in failed] == [
        (Reason.FAILED_REQUEST, "q-4"),
        (Reason.FAILED_REQUEST, "q-7"),
    ]
    assert "429" in failed[0].detail and "batch_expired" in failed[1].detail


def test_embeddings_are_no_answers() -> None:
    for name in ("openai_batch_input", "openai_batch_output"):
        assert items_of("openai_batch", fixture_rows(name)[5]) == [NoAnswer("batch_of_another_kind")]


def test_a_line_without_response_and_error_is_named() -> None:
    rejected = rejected_of("openai_batch", {"custom_id": "q", "id": "b", "response": None, "error": None})
    assert rejected.reason is Reason.MISSING_FIELD and rejected.join_key == "q"


def test_what_vllm_writes_is_read() -> None:
    run_batch: Any = importlib.import_module("vllm.entrypoints.launchers.run_batch")
    protocol: Any = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for i, text in enumerate(CITIES)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}
    body = protocol.ChatCompletionResponse(model="m", choices=choices, usage=usage)
    done = run_batch.BatchRequestOutput(
        id="vllm-1",
        custom_id="q-1",
        response=run_batch.BatchResponseData(request_id="vllm-batch-1", body=body),
        error=None,
    )
    record = record_of("openai_batch", json.loads(done.model_dump_json()))
    assert texts(record) == CITIES and record.join_key == "q-1" and record.request_id == body.id
    error = {"error": {"message": "secret", "type": "BadRequestError", "param": None, "code": 400}}
    response = run_batch.BatchResponseData(status_code=400, request_id="vllm-batch-2")
    failed = run_batch.BatchRequestOutput(id="vllm-2", custom_id="q-2", response=response, error=error)
    rejected = rejected_of("openai_batch", json.loads(failed.model_dump_json()))
    assert rejected.reason is Reason.FAILED_REQUEST and rejected.detail.endswith("400")


def test_what_vllm_reads_is_read() -> None:
    run_batch: Any = importlib.import_module("vllm.entrypoints.launchers.run_batch")
    line = fixture_rows("openai_batch_input")[0]
    read = run_batch.BatchRequestInput.model_validate(line)
    (prompt,) = items_of("openai_batch", line)
    assert isinstance(prompt, BatchPrompt) and prompt.prompt is not None
    assert json.loads(prompt.prompt) == [dict(message) for message in read.body.messages]
