"""Calls that telemetry writes in pieces: an event for each answer and each message of the question, a span.

Events of openai-v2 2.1b0 and of OpenLLMetry: `gen_ai.choice` with index, `gen_ai.user.message` and its like.
The span alone names the model. All of a call share its trace and span id, and may stand in several lines and
files; `assembled` makes one request of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgpu.logs.records import CallPart, Item, Reason
from sgpu.logs.rows.assembly import Answer, Request, assemble, checked_text
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.fields import checked
from sgpu.logs.rows.json_text import parsed, structured
from sgpu.logs.rows.question import Question, canonical, is_whole
from sgpu.logs.rows.responses import answers_of

CHOICE = "gen_ai.choice"
MESSAGES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def answer_content(body: Mapping[str, Any]) -> str | None:
    """The answer of a `gen_ai.choice`, as content of a `CallPart`; None where it was not captured.

    Raises RowFault.
    """
    message = structured(body.get("message"))
    calls = body.get("tool_calls")
    if not isinstance(message, Mapping) or (not message.get("content") and not message.get("tool_calls")):
        if not calls:
            return None
        message = {"tool_calls": calls}
    choice = {**body, "message": {**message, **({"tool_calls": calls} if calls else {})}}
    (answer,) = answers_of({"choices": [choice]})
    if not isinstance(answer.index, int):
        raise RowFault(Reason.MISSING_FIELD, "the index of an answer is missing")
    text = checked_text(answer.text, answer.index)
    return canonical(
        {"answer": [answer.index, text, answer.finish_reason, answer.refused, answer.called_tool]}
    )


def message_content(role: str, body: Mapping[str, Any]) -> str:
    """A message of the question, likewise."""
    said = {key: value for key, value in body.items() if "." not in key}  # the others are the event's own
    return canonical({"message": {"role": role, **said}})


def span_content(sampling: Mapping[str, Any], asked: int | None) -> str:
    """What the span says of the request, likewise."""
    return canonical({"sampling": sampling, "asked": asked})


def assembled(call_id: str, parts: Sequence[CallPart], models: Iterable[str] = ()) -> Item:
    """The request of its parts, in the order of the logs; at least one is an answer.

    ``models``: those of the spans beneath, which are asked where the call's own span is not there: a client
    that streams writes its events after the span has ended, with the id of the one around it.
    """
    about = {
        "request_id": call_id,
        "timestamp": min((one.timestamp for one in parts if one.timestamp is not None), default=None),
        "model": next((one.model for one in parts if one.model), None),
        "route": next((one.route for one in parts if one.route), None),
    }
    if about["model"] is None:
        beneath = set(models)
        about["model"] = beneath.pop() if len(beneath) == 1 else None
    return checked(lambda: _request(about, [parsed(one.content) for one in parts]), **about)


def _request(about: Mapping[str, Any], contents: Sequence[Mapping[str, Any]]) -> Item:
    if about["model"] is None:
        raise RowFault(Reason.MISSING_FIELD, "no span of this call in these logs names its model")
    said = {json.dumps(one["answer"]): one["answer"] for one in contents if "answer" in one}
    answers = [
        Answer(text, end, index, refused, called) for index, text, end, refused, called in said.values()
    ]
    if len({one.index for one in answers}) != len(answers):
        raise RowFault(Reason.CONFLICT, "two events of this call give different answers of one index")
    span: Mapping[str, Any] = next((one for one in contents if "sampling" in one), {})
    messages = list({canonical(one): one["message"] for one in contents if "message" in one}.values())
    request = Request(
        answers=answers,
        question=Question(messages or None, span.get("sampling", {}), whole=is_whole(messages)),
        asked=span.get("asked"),
        **about,
    )
    return assemble(request)


def call_id_of(trace_id: str, span_id: str) -> str | None:
    """The request id of a call; None without either id."""
    return f"{trace_id}:{span_id}" if trace_id and span_id else None
