"""Messages of the GenAI conventions: a role and parts, of which those of type text are the text.

Source: open-telemetry/semantic-conventions-genai, gen-ai-input-messages.json and gen-ai-output-messages.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgpu.logs.records import Reason
from sgpu.logs.rows.assembly import Answer
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.fields import text_of
from sgpu.logs.rows.json_text import structured
from sgpu.logs.rows.question import Question

_REQUEST = "gen_ai.request."
_NOT_SAMPLING = ("model", "seed", "choice.count", "stream")
_ANSWERING_ROLES = (None, "assistant", "model")


def output_answers(output: Any, finish_reasons: Any) -> list[Answer]:
    """One answer per message. Raises RowFault."""
    if not isinstance(output, list) or not all(isinstance(one, Mapping) for one in output):
        raise RowFault(
            Reason.BAD_VALUE, f"gen_ai.output.messages is a {type(output).__name__}, not a list of objects"
        )
    ends = finish_reasons if isinstance(finish_reasons, list) else []
    answers = [one for one in output if one.get("role") in _ANSWERING_ROLES]
    return [_answer(one, ends[place] if place < len(ends) else None) for place, one in enumerate(answers)]


def question_of(attributes: Mapping[str, Any]) -> Question:
    """What was asked, where it was logged. Raises RowFault."""
    system = structured(attributes.get("gen_ai.system_instructions"))
    messages = structured(attributes.get("gen_ai.input.messages"))
    sampling = sampling_of(attributes)
    group_id = text_of(attributes.get("group_id"), "group_id")
    if not messages:
        return Question(sampling=sampling, group_id=group_id)
    chat = _chat(system, messages)
    content = chat if chat is not None else {"system": system, "messages": messages}
    return Question(content, sampling, group_id=group_id, whole=chat is not None)


def sampling_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request, without what changes no answer."""
    sampling = {
        key.removeprefix(_REQUEST): value
        for key, value in attributes.items()
        if key.startswith(_REQUEST) and key.removeprefix(_REQUEST) not in _NOT_SAMPLING
    }
    if tools := attributes.get("gen_ai.tool.definitions"):
        sampling["tools"] = structured(tools)
    return sampling


def _answer(message: Mapping[str, Any], end: Any) -> Answer:
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise RowFault(Reason.MISSING_FIELD, "a message has no list of parts")
    kinds = [part.get("type") for part in parts if isinstance(part, Mapping)]
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == "text":
            text = part.get("content")
            if not isinstance(text, str):
                raise RowFault(Reason.BAD_VALUE, f"a text part is a {type(text).__name__}, not text")
            texts.append(text)
    return Answer("".join(texts), message.get("finish_reason") or end, called_tool="tool_call" in kinds)


def _chat(system: Any, messages: Any) -> list[dict[str, str]] | None:
    """The question as chat messages of text; None where it has parts of another kind."""
    if not isinstance(messages, list):
        return None
    turns = [{"role": "system", "parts": system}, *messages] if system else messages
    found = [_turn(one) for one in turns]
    whole = [one for one in found if one is not None]
    return whole if len(whole) == len(found) else None


def _turn(message: Any) -> dict[str, str] | None:
    if not isinstance(message, Mapping):
        return None
    role, parts = message.get("role"), message.get("parts")
    if not isinstance(role, str) or not isinstance(parts, list) or not parts:
        return None
    texts = [
        part["content"]
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("content"), str)
    ]
    return {"role": role, "content": "".join(texts)} if len(texts) == len(parts) else None
