"""Responses of OpenAI's API and of what speaks it: chat completions, completions, Responses API, batch files.

Source: openai/openai-openapi, openapi.yaml, and the types of the `openai` package. A response does not hold
its question, so that one with a single answer can only be grouped by its ``metadata.group_id``. The output
items of the Responses API are one answer, which has no ``n``.

Batch files, which `vllm run-batch` reads and writes too: inputs and outputs, joined by custom_id.

    input   {"custom_id": "q-1", "method": "POST", "url": "/v1/chat/completions", "body": {request}}
    output  {"id": "batch_req_1", "custom_id": "q-1", "response": {"status_code": 200, "request_id": "...",
             "body": {response}}, "error": null}

Source: BatchRequestInput and BatchRequestOutput. The output holds no question and comes in any order. A
custom_id is unique in its batch only: the request id is that of the response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.logs.records import BatchPrompt, Item, NoAnswer, Reason
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.envelopes import KINDS
from sgpu.logs.rows.fields import (
    RowFault,
    checked,
    count_of,
    identity_of,
    mapping_of,
    needed_text,
    show_value,
    text_of,
)
from sgpu.logs.rows.question import LoggedQuestion, question_of_body, several_questions, sha256_of

RUNNING = ("in_progress", "queued")
FAILED = ("failed", "cancelled")
ANSWERING = ("/chat/completions", "/completions", "/responses")


class OpenAIResponses:
    """One row per response."""

    name = "openai"

    def recognises(self, record: dict[str, Any]) -> bool:
        return record.get("object") in KINDS or ("choices" in record and "created" in record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        yield checked(lambda: response_item(record), **identity_fields(record))


def response_item(body: Mapping[str, Any], join_key: str | None = None) -> Item:
    """The item of a response's body. Raises RowFault."""
    metadata = mapping_of(body.get("metadata"))
    if body.get("status") in RUNNING:
        return NoAnswer("unfinished")
    if body.get("status") in FAILED or body.get("error"):
        code = mapping_of(body.get("error")).get("code")
        raise RowFault(
            Reason.FAILED_REQUEST, f"status {show_value(body.get('status'))}, error {show_value(code)}"
        )
    request = Request(
        **identity_of(identity_fields(body), "id", "created", route="metadata.route"),
        answers=answers_of(body),
        question=LoggedQuestion(group_id=text_of(metadata.get("group_id"), "metadata.group_id")),
        join_key=join_key,
    )
    return assemble(request)


def identity_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by which a rejected response is found again."""
    return {
        "request_id": body.get("id"),
        "timestamp": body.get("created", body.get("created_at")),
        "model": body.get("model"),
        "route": mapping_of(body.get("metadata")).get("route"),
    }


class OpenAIBatch:
    """Lines of input files become prompts, lines of output and error files become records."""

    name = "openai_batch"

    def recognises(self, record: dict[str, Any]) -> bool:
        return "custom_id" in record and any(key in record for key in ("body", "response", "error"))

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        key = record.get("custom_id")
        if record.get("body") is not None and record.get("response") is None:
            model = mapping_of(record["body"]).get("model")
            yield checked(lambda: _prompt(record), request_id=key, model=model)
            return
        body = mapping_of(mapping_of(record.get("response")).get("body"))
        identity = identity_fields(body)
        identity["request_id"] = identity["request_id"] or record.get("id")
        yield checked(lambda: _answer(record, body), join_key=key, **identity)


def _prompt(line: Mapping[str, Any]) -> Item:
    url = text_of(line.get("url"), "url")
    if url is not None and not url.endswith(ANSWERING):
        return NoAnswer("batch_of_another_kind")
    body = mapping_of(line.get("body"))
    metadata = mapping_of(body.get("metadata"))
    question = question_of_body(body)
    if not question.content:
        raise RowFault(Reason.MISSING_FIELD, "body has neither messages nor prompt nor input")
    model = needed_text(body.get("model"), "body.model")
    single = count_of(body.get("n"), "body.n") in (None, 1)
    return BatchPrompt(
        join_key=needed_text(line.get("custom_id"), "custom_id"),
        prompt_sha256=sha256_of(question.content),
        route=text_of(metadata.get("route"), "metadata.route"),
        model=model,
        prompt=question.json,
        group_key=question.group_key(model) if single else None,
        fault=several_questions(body),
    )


def _answer(line: Mapping[str, Any], body: Mapping[str, Any]) -> Item:
    key = needed_text(line.get("custom_id"), "custom_id")
    if line.get("error"):
        error = mapping_of(line["error"])
        code = mapping_of(error.get("error", error)).get("code")  # vLLM puts it one level deeper
        raise RowFault(Reason.FAILED_REQUEST, f"the batch gives the error {show_value(code)}")
    response = mapping_of(line.get("response"))
    if not response:
        raise RowFault(Reason.MISSING_FIELD, "response is missing")
    status = response.get("status_code")
    if status not in (None, 200):
        raise RowFault(Reason.FAILED_REQUEST, f"status_code is {show_value(status)}, not 200")
    if body.get("object") == "list":  # embeddings, scores
        return NoAnswer("batch_of_another_kind")
    return response_item(body, join_key=key)
