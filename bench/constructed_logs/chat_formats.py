"""Requests as SGPU's own rows, single answers, OpenAI's responses, and the two files of OpenAI's batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bench.constructed_logs.faults import Choice
from bench.constructed_logs.traffic import Request

SAMPLING = {"temperature": 1.0, "top_p": 0.9}
_TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}


def sgpu(request: Request, given: Sequence[Choice]) -> dict[str, Any]:
    """A row of SGPU's schema, see `sgpu.logs.formats.sgpu`."""
    samples = [
        {"index": place, "text": choice.text, "finish_reason": choice.finish}
        for place, choice in enumerate(given)
    ]
    return {
        "schema_version": 1,
        "request_id": request.request_id,
        "timestamp": utc(request.micros),
        "model": request.model,
        "messages": messages(request),
        "samples": samples,
        "sampling": {"n": len(given), **SAMPLING},
        "label": request.label,
        "route": request.route,
    }


def single(request: Request, choice: Choice, place: int) -> dict[str, Any]:
    """One answer of ``request`` as a request of its own; all of them have one question that no other has."""
    return {
        "request_id": f"{request.request_id}-{place:03d}",
        "timestamp": request.micros // 1_000_000,
        "model": request.model,
        "prompt": request.question,
        "text": choice.text,
        "finish_reason": choice.finish,
        "sampling": SAMPLING,
        "route": request.route,
    }


def openai(request: Request, given: Sequence[Choice]) -> dict[str, Any]:
    """A chat completion, without its question."""
    return {
        "id": f"chatcmpl-{request.request_id}",
        "object": "chat.completion",
        "created": request.micros // 1_000_000,
        "model": request.model,
        "choices": [_choice(choice, place) for place, choice in enumerate(given)],
        "usage": {"prompt_tokens": 21, "completion_tokens": 4 * len(given)},
        "metadata": {} if request.route is None else {"route": request.route},
    }


def batch_input(request: Request) -> dict[str, Any]:
    """A line of a batch's input file."""
    body = {
        "model": request.model,
        "messages": messages(request),
        "n": len(request.answers),
        **SAMPLING,
        "metadata": {} if request.route is None else {"route": request.route},
    }
    return {
        "custom_id": f"task-{request.request_id}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }


def batch_output(request: Request, given: Sequence[Choice], *, failed: bool) -> dict[str, Any]:
    """A line of a batch's output file. Of the failed, every second never reached the model."""
    line: dict[str, Any] = {
        "id": f"batch_req_{request.request_id}",
        "custom_id": f"task-{request.request_id}",
    }
    if failed and request.number % 2:
        return line | {"response": None, "error": {"code": "batch_expired", "message": "expired"}}
    body = {"error": {"code": "server_error"}} if failed else openai(request, given)
    response = {"status_code": 500 if failed else 200, "request_id": f"up-{request.number}", "body": body}
    return line | {"response": response, "error": None}


def messages(request: Request) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": "Answer as briefly as possible."},
        {"role": "user", "content": request.question},
    ]


def utc(micros: int) -> str:
    """RFC 3339 with microseconds."""
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def _choice(choice: Choice, place: int) -> dict[str, Any]:
    refused, calls = choice.finish == "refusal", choice.finish == "tool_calls"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": choice.text,
        "refusal": "I cannot help with that." if refused else None,
    }
    if calls:
        message["tool_calls"] = [_TOOL_CALL]
    # A refusal ends like any other answer: only the message says what it is.
    return {"index": place, "message": message, "finish_reason": "stop" if refused else choice.finish}
