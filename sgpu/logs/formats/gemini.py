"""Gemini's responses, as REST gives them (camelCase) and as the `google-genai` package dumps them.

Source: the types of `google-genai` (GenerateContentResponse); one candidate an answer. Time and id are not in
every version of the API: without a time the folder has to name the day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgpu.logs.records import UNDATED, Item, Reason
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.envelopes import IDS, MODELS, TIMES, first_at
from sgpu.logs.rows.fields import RowFault, checked, micros_of, needed_text


class GeminiResponses:
    """One row per response."""

    name = "gemini"

    def recognises(self, record: dict[str, Any]) -> bool:
        return isinstance(record.get("candidates"), list) or "promptFeedback" in record

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        known = {
            "request_id": first_at(record, IDS),
            "timestamp": first_at(record, TIMES),
            "model": first_at(record, MODELS),
        }
        yield checked(lambda: _item(record, known), **known)


def _item(record: Mapping[str, Any], known: Mapping[str, Any]) -> Item:
    if not record.get("candidates"):
        raise RowFault(Reason.CONTENT_FILTER, "no candidates: the prompt was blocked")
    time = known["timestamp"]
    request = Request(
        request_id=needed_text(known["request_id"], "responseId"),
        timestamp=UNDATED if time is None else micros_of(time, "createTime"),
        model=needed_text(known["model"], "modelVersion"),
        route=None,
        answers=answers_of(record),
    )
    return assemble(request)
