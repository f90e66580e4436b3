"""Responses of providers inside the records of other tools (see `sgpu.logs.rows.envelopes`), and of Gemini.

The request id and the time are those of the record, else of the response. A question that stands beside the
response makes single answers to it one set.

Gemini's responses stand alone, as REST gives them (camelCase) and as the `google-genai` package dumps them.
Source: its types (GenerateContentResponse); one candidate an answer. Time and id are not in every version of
the API: without a time the folder has to name the day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sgpu.logs.formats.mlflow import is_trace
from sgpu.logs.records import Item, NoAnswer, Reason
from sgpu.logs.rows.answers import Request, answers_of, assemble
from sgpu.logs.rows.envelopes import IDS, MODELS, ROUTES, SETTINGS, TIMES, Envelope, envelope_of, first_at
from sgpu.logs.rows.fields import RowFault, checked, count_of, identity_of, mapping_of, text_of
from sgpu.logs.rows.question import question_of_request, refuse_several


class Wrapped:
    """One row per call."""

    name = "wrapped"

    def recognises(self, record: dict[str, Any]) -> bool:
        of_another = any(key in record for key in ("custom_id", "samples", "choices", "candidates"))
        return not of_another and not is_trace(record) and envelope_of(record) is not None

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        envelope = envelope_of(record) or Envelope(None, None)
        body, request = mapping_of(envelope.response), mapping_of(envelope.request)
        time = first_at(record, TIMES)
        identity = {
            "request_id": first_at(record, IDS) or first_at(body, IDS),
            "timestamp": first_at(body, TIMES) if time is None else time,
            "model": next(filter(None, (first_at(part, MODELS) for part in (body, record, request))), None),
            "route": first_at(record, ROUTES),
        }
        yield checked(lambda: _item(record, envelope, identity), **identity)


class GeminiResponses:
    """One row per response of Gemini."""

    name = "gemini"

    def recognises(self, record: dict[str, Any]) -> bool:
        return isinstance(record.get("candidates"), list) or "promptFeedback" in record

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        paths = {"request_id": IDS, "timestamp": TIMES, "model": MODELS}
        identity = {field: first_at(record, places) for field, places in paths.items()}
        yield checked(lambda: _gemini(record, identity), **identity)


def _gemini(record: Mapping[str, Any], identity: Mapping[str, Any]) -> Item:
    if not record.get("candidates"):
        raise RowFault(Reason.CONTENT_FILTER, "no candidates: the prompt was blocked")
    request = Request(
        **identity_of(identity, "responseId", "createTime", "modelVersion", undated=True),
        answers=answers_of(record),
    )
    return assemble(request)


def _item(record: Mapping[str, Any], envelope: Envelope, identity: Mapping[str, Any]) -> Item:
    if not envelope.is_call:
        return NoAnswer("other_run")
    if not envelope.response:
        reason = Reason.FAILED_REQUEST if envelope.failed else Reason.MISSING_FIELD
        raise RowFault(reason, "the call failed" if envelope.failed else "the call has no response")
    settings = mapping_of(first_at(record, SETTINGS))
    request = envelope.request
    body = {**settings, **request} if isinstance(request, Mapping) else settings
    refuse_several(body)
    config = mapping_of(body.get("generationConfig"))
    n_requested = count_of(body.get("n", config.get("candidateCount")), "n of the request")
    question = question_of_request(request, settings)
    group_id = text_of(first_at(record, ("group_id", "metadata.group_id")), "group_id")
    logged = Request(
        **identity_of(identity, "id", "time", undated=True),
        answers=answers_of(envelope.response, n_requested),
        question=replace(question, group_id=group_id or question.group_id),
        n_requested=n_requested,
    )
    return assemble(logged)
