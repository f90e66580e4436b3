"""Responses of OpenAI's API and of what speaks it: chat completions, completions, the Responses API.

Source: openai/openai-openapi, openapi.yaml, and the types of the `openai` package. A response does not hold
its question, so that one with a single answer can only be grouped by its ``metadata.group_id``. The output
items of the Responses API are one answer, which has no ``n``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.logs.records import Item, Reason
from sgpu.logs.rows.assembly import Request, assemble
from sgpu.logs.rows.clock import micros_of
from sgpu.logs.rows.envelopes import KINDS
from sgpu.logs.rows.fault import RowFault, shown
from sgpu.logs.rows.fields import checked, mapping_of, needed_text, text_of, unfinished
from sgpu.logs.rows.question import Question
from sgpu.logs.rows.responses import answers_of

RUNNING = ("in_progress", "queued")
FAILED = ("failed", "cancelled")


class OpenAIResponses:
    """One row per response."""

    name = "openai"

    def recognises(self, record: dict[str, Any]) -> bool:
        return record.get("object") in KINDS or ("choices" in record and "created" in record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        yield checked(lambda: response_item(record), **known_of(record))


def response_item(body: Mapping[str, Any], join_key: str | None = None) -> Item:
    """The item of a response's body. Raises RowFault."""
    metadata = mapping_of(body.get("metadata"))
    if body.get("status") in RUNNING:
        return unfinished()
    if body.get("status") in FAILED or body.get("error"):
        code = mapping_of(body.get("error")).get("code")
        raise RowFault(Reason.FAILED_REQUEST, f"status {shown(body.get('status'))}, error {shown(code)}")
    request = Request(
        request_id=needed_text(body.get("id"), "id"),
        timestamp=micros_of(created(body), "created"),
        model=needed_text(body.get("model"), "model"),
        route=text_of(metadata.get("route"), "metadata.route"),
        answers=answers_of(body),
        question=Question(group_id=text_of(metadata.get("group_id"), "metadata.group_id")),
        join_key=join_key,
    )
    return assemble(request)


def known_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by which a rejected response is found again."""
    route = mapping_of(body.get("metadata")).get("route")
    return {
        "request_id": body.get("id"),
        "timestamp": created(body),
        "model": body.get("model"),
        "route": route,
    }


def created(body: Mapping[str, Any]) -> Any:
    """The time of a response, under either name."""
    return body.get("created", body.get("created_at"))
