"""Anthropic's messages, and the request and result lines of its batches, joined by custom_id.

Source: the types of the `anthropic` package (Message, MessageBatchIndividualResponse). A message is one
answer and holds neither its question nor a time: the folder names the day, and the question is that of a pair
of request and response, or of the batch's requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.logs.records import UNDATED, BatchPrompt, Item, Reason
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.fields import RowFault, checked, mapping_of, micros_of, needed_text, show_value, text_of
from sgpu.logs.rows.question import LoggedQuestion, question_of_request, sha256_of


class AnthropicMessages:
    """Messages become records, lines of a batch's requests prompts."""

    name = "anthropic"

    def recognises(self, record: dict[str, Any]) -> bool:
        if "custom_id" in record:
            return "params" in record or "result" in record
        return record.get("type") == "message" and "content" in record and "model" in record

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        key = record.get("custom_id")
        if key is not None and record.get("params") is not None:
            model = mapping_of(record["params"]).get("model")
            yield checked(lambda: _prompt(record), request_id=key, model=model)
            return
        result = mapping_of(record.get("result"))
        message = mapping_of(result.get("message")) if key is not None else record
        identity = {"request_id": message.get("id") or key, "model": message.get("model")}
        yield checked(lambda: _answer(record, result, message), join_key=key, **identity)


def _prompt(line: Mapping[str, Any]) -> Item:
    params = mapping_of(line.get("params"))
    question = question_of_request(params)
    if not question.content:
        raise RowFault(Reason.MISSING_FIELD, "params has no messages")
    model = needed_text(params.get("model"), "params.model")
    return BatchPrompt(
        join_key=needed_text(line.get("custom_id"), "custom_id"),
        prompt_sha256=sha256_of(question.content),
        route=None,
        model=model,
        prompt=question.json,
        group_key=question.group_key(model),
    )


def _answer(line: Mapping[str, Any], result: Mapping[str, Any], message: Mapping[str, Any]) -> Item:
    join_key = text_of(line.get("custom_id"), "custom_id")
    if join_key is not None and result.get("type") != "succeeded":
        raise RowFault(Reason.FAILED_REQUEST, f"the result is of type {show_value(result.get('type'))}")
    metadata = mapping_of(message.get("metadata"))
    time = message.get("created_at")
    request = Request(
        request_id=needed_text(message.get("id"), "id"),
        timestamp=UNDATED if time is None else micros_of(time, "created_at"),
        model=needed_text(message.get("model"), "model"),
        route=text_of(metadata.get("route"), "metadata.route"),
        answers=answers_of(message),
        question=LoggedQuestion(group_id=text_of(metadata.get("group_id"), "metadata.group_id")),
        n_requested=1,
        join_key=join_key,
    )
    return assemble(request)
