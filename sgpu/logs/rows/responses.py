"""The answers in a provider's response: OpenAI's three kinds, Anthropic's message, LangChain's result, text.

OpenAI: openapi.yaml of openai/openai-openapi (CreateChatCompletionResponse, CreateCompletionResponse,
Response). LangChain: `LLMResult.generations`, a list of prompts that each have a list of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgpu.logs.records import Reason
from sgpu.logs.rows.assembly import Answer
from sgpu.logs.rows.fault import RowFault

_TEXT_PARTS = ("text", "output_text")
_TOOL_PARTS = ("tool_use", "tool_call", "function_call")


def answers_of(body: Any, asked: int | None = None) -> list[Answer]:
    """The answers to one question, in the order of the log. Raises RowFault where the shape is not known.

    ``asked``: how many were asked for, if known.
    """
    if isinstance(body, str):
        return [Answer(body)]
    if isinstance(body, list) and body and all(isinstance(one, str) for one in body):
        return _texts(body, asked)
    if isinstance(body, list) and body and all(_is_message(one) for one in body):
        _texts(body, asked)
        return [_message(one, None) for one in body]
    if isinstance(body, Mapping):
        if "choices" in body:
            return _choices(body["choices"])
        if isinstance(body.get("candidates"), list):
            return [_candidate(one) for one in body["candidates"]]
        if isinstance(body.get("output"), list):
            return [_response(body)]
        if "generations" in body:
            return _generations(body["generations"])
        if "content" in body:
            return [_message(body, body.get("stop_reason"))]
        output = body.get("output")
        if isinstance(output, Mapping) and isinstance(output.get("message"), Mapping):
            return [_message(_typed(output["message"]), body.get("stopReason"))]
    raise RowFault(
        Reason.UNKNOWN_FORMAT, f"the output is a {type(body).__name__} of a shape that is not known"
    )


def _typed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message of Bedrock's Converse, whose parts name their kind by a key."""
    kinds = {"text": "text", "toolUse": "tool_use"}
    parts = message.get("content")
    listed = [one for one in parts if isinstance(one, Mapping)] if isinstance(parts, list) else []
    typed = [{**one, "type": next((kinds[key] for key in kinds if key in one), "other")} for one in listed]
    return {**message, "content": typed}


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("role") == "assistant" and "content" in value


def _candidate(candidate: Any) -> Answer:
    """Of Gemini: the parts with text that are no thoughts."""
    if not isinstance(candidate, Mapping):
        raise RowFault(Reason.BAD_VALUE, f"a candidate is a {type(candidate).__name__}, not an object")
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    parts = [one for one in parts if isinstance(one, Mapping)] if isinstance(parts, list) else []
    texts = [one["text"] for one in parts if one.get("text") is not None and not one.get("thought")]
    if not all(isinstance(one, str) for one in texts):
        raise RowFault(Reason.BAD_VALUE, "a part of a candidate holds a text that is not a string")
    called = any(one.get("functionCall") or one.get("function_call") for one in parts)
    end = candidate.get("finishReason", candidate.get("finish_reason"))
    return Answer("".join(texts), end, candidate.get("index"), called_tool=called)


def _texts(texts: list[Any], asked: int | None) -> list[Answer]:
    """A list of texts may be the answers of a function, or the pieces of one that came as a stream."""
    if len(texts) != (asked or 1):
        said = "n is missing in the inputs" if asked is None else f"n in the inputs is {asked}"
        raise RowFault(Reason.BAD_VALUE, f"the output is a list of {len(texts)} texts, but {said}")
    return [Answer(text) for text in texts]


def _choices(choices: Any) -> list[Answer]:
    if choices is None:
        raise RowFault(Reason.MISSING_FIELD, "choices is missing")
    if not isinstance(choices, list) or not all(isinstance(one, Mapping) for one in choices):
        raise RowFault(Reason.BAD_VALUE, f"choices is a {type(choices).__name__}, not a list of objects")
    # vLLM can log the tokens of its prompt with each choice: what a request asked, seen from its answers.
    prompts = [one["prompt_token_ids"] for one in choices if one.get("prompt_token_ids")]
    if any(prompt != prompts[0] for prompt in prompts):
        raise RowFault(Reason.BAD_VALUE, "the choices answer different prompts")
    return [_choice(one) for one in choices]


def _choice(choice: Mapping[str, Any]) -> Answer:
    end, index = choice.get("finish_reason"), choice.get("index")
    message = choice.get("message")
    if isinstance(message, Mapping):
        return _message(message, end, index)
    if message is None and "text" in choice:
        return Answer(choice["text"], end, index)
    raise RowFault(Reason.MISSING_FIELD, "a choice has neither message nor text")


def _message(message: Mapping[str, Any], end: Any, index: Any = None) -> Answer:
    parts = _Parts(message.get("content"))
    called = bool(message.get("tool_calls") or message.get("function_call")) or parts.called_tool
    refused = bool(message.get("refusal")) or parts.refused
    return Answer(parts.text, end, index, refused=refused, called_tool=called)


def _response(body: Mapping[str, Any]) -> Answer:
    """All items of a response are one answer: it may think, call tools and write in turn."""
    texts, called, refused = [], False, False
    for item in body["output"]:
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "message":
            parts = _Parts(item.get("content"))
            refused |= parts.refused
            called |= parts.called_tool
            texts += [parts.text] if parts.text is not None else []
        elif isinstance(kind, str) and kind in ("function_call", "custom_tool_call"):
            called = True  # calls of the provider's own tools end in a message; these wait for the caller
    details = body.get("incomplete_details")
    end = details.get("reason") if isinstance(details, Mapping) else None
    if not all(isinstance(text, str) for text in texts):
        raise RowFault(Reason.BAD_VALUE, "output holds a text that is not a string")
    end = "length" if end == "max_output_tokens" else end
    return Answer("".join(texts), end, refused=refused, called_tool=called)


def _generations(prompts: Any) -> list[Answer]:
    if not isinstance(prompts, list) or not all(isinstance(one, list) for one in prompts):
        raise RowFault(Reason.BAD_VALUE, "generations is not a list of lists")
    if len(prompts) != 1:
        raise RowFault(Reason.BAD_VALUE, f"generations answers {len(prompts)} prompts, not 1")
    found = []
    for place, one in enumerate(prompts[0]):
        if not isinstance(one, Mapping):
            raise RowFault(Reason.BAD_VALUE, f"generation {place} is a {type(one).__name__}, not an object")
        info, message = one.get("generation_info"), one.get("message")
        end = info.get("finish_reason") if isinstance(info, Mapping) else None
        message = message.get("kwargs", message) if isinstance(message, Mapping) else {}
        called = isinstance(message, Mapping) and bool(message.get("tool_calls"))
        found.append(Answer(one.get("text"), end, called_tool=called))
    return found


class _Parts:
    """A message's content: text, nothing, or a list of parts of which those with text are one text."""

    def __init__(self, content: Any) -> None:
        self.refused = self.called_tool = False
        self.text = content
        if isinstance(content, list):
            self.text = "".join(text for part in content for text in self._texts(part))

    def _texts(self, part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise RowFault(Reason.BAD_VALUE, "a part of an answer has no type")
        self.refused |= kind == "refusal"
        self.called_tool |= kind in _TOOL_PARTS
        text = part.get("text")
        if kind in _TEXT_PARTS and not isinstance(text, str):
            raise RowFault(Reason.BAD_VALUE, f"a text part is a {type(text).__name__}, not text")
        return [text] if kind in _TEXT_PARTS else []
