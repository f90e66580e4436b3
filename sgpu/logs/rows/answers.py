"""From the answers in a provider's response to a record that can be scored, or to the reason why it cannot.

OpenAI's three kinds of responses, Anthropic's message, LangChain's result, text. OpenAI: openapi.yaml of
openai/openai-openapi (CreateChatCompletionResponse, CreateCompletionResponse, Response). LangChain:
`LLMResult.generations`, a list of prompts that each have a list of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu.logs.records import MAX_SAMPLES, Item, LogRecord, Reason, Rejected, SampledAnswer, why_too_few
from sgpu.logs.rows.fields import RowFault, bounded_text, objects_in, objects_of
from sgpu.logs.rows.question import LoggedQuestion
from sgpu.storage.json_lines import MAX_TEXT, storable

# Words of OpenAI, vLLM, Anthropic, Gemini, Azure and OpenTelemetry for why an answer ended.
_ENDS = {
    Reason.CONTENT_FILTER: (
        "content_filter content-filter contentfilter safety recitation blocklist prohibited_content spii"
    ),
    Reason.TOOL_CALL: "tool_calls tool_call function_call tool_use",
    Reason.REFUSAL: "refusal",
    Reason.FAILED_REQUEST: "error abort aborted failed cancelled",
}
_REASON_OF_END = {word: reason for reason, words in _ENDS.items() for word in words.split()}
_TEXT_PARTS = ("text", "output_text")
_TOOL_PARTS = ("tool_use", "tool_call", "function_call")


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """One answer as it was logged; ``text`` is checked later. ``index``: its place, if it was told."""

    text: Any
    finish_reason: Any = None
    index: Any = None
    refused: bool = False
    called_tool: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One logged request, its identity checked, its answers not yet. ``n_requested``: answers, if known.

    ``groups``: a single answer of it may be grouped with others to the same question.
    """

    request_id: str
    timestamp: int
    model: str
    route: str | None
    answers: Sequence[LoggedAnswer]
    question: LoggedQuestion | None = None
    n_requested: int | None = None
    label: int | None = None
    join_key: str | None = None
    groups: bool = True


def assemble(request: Request) -> Item:
    """The record of a request: its usable answers in the order of their index. Raises RowFault.

    A request for one answer becomes a record of one sample if it can be joined or grouped; any other request
    with fewer than two usable answers is rejected.
    """
    if len(request.answers) > MAX_SAMPLES:
        raise RowFault(Reason.TOO_MANY, f"{len(request.answers)} answers, above {MAX_SAMPLES}")
    samples, dropped = _sifted(request.answers)
    question = request.question or LoggedQuestion()
    single = len(request.answers) == 1 and request.n_requested in (None, 1)
    key = question.group_key(request.model) if single and request.groups and not request.join_key else None
    too_few = why_too_few(len(samples), dropped)
    about: dict[str, Any] = {
        name: getattr(request, name) for name in ("request_id", "timestamp", "model", "route", "join_key")
    }
    about["prompt"] = question.json
    if too_few and not (samples and single and (key or request.join_key)):
        return Rejected(too_few, _counted(len(samples), dropped), **about)
    return LogRecord(
        **about,
        samples=samples,
        dropped=tuple(str(reason) for reason in dropped),
        prompt_sha256=question.sha256,
        label=request.label,
        group_key=key,
    )


def _sifted(answers: Sequence[LoggedAnswer]) -> tuple[tuple[SampledAnswer, ...], list[Reason]]:
    samples, dropped = [], []
    # Where a place is missing or given twice, the order of the log stands.
    for position, answer in sorted(enumerate(answers), key=_position):
        text = read_answer_text(answer.text, position)
        end = answer.finish_reason.lower()[:64] if isinstance(answer.finish_reason, str) else None
        reason = _why_dropped(answer, text, end)
        if reason:
            dropped.append(reason)
        else:
            samples.append(SampledAnswer(text, end if end is None or storable(end) else None))
    return tuple(samples), dropped


def _position(answer: tuple[int, LoggedAnswer]) -> int:
    index = answer[1].index
    return index if isinstance(index, int) and not isinstance(index, bool) else answer[0]


def _why_dropped(answer: LoggedAnswer, text: str, end: str | None) -> Reason | None:
    if answer.called_tool:
        return Reason.TOOL_CALL
    if answer.refused:
        return Reason.REFUSAL
    if end in _REASON_OF_END:
        return _REASON_OF_END[end]
    return None if text.strip() else Reason.EMPTY


def read_answer_text(value: Any, position: int) -> str:
    """Return the text of an answer, empty where it is None. Raises RowFault."""
    return "" if value is None else bounded_text(value, f"answer {position}", MAX_TEXT, Reason.OVERSIZE)


def _counted(usable: int, dropped: Sequence[Reason]) -> str:
    counts = {reason: dropped.count(reason) for reason in dict.fromkeys(dropped)}
    left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f"{usable} usable answers, below 2" + (f"; left out: {left_out}" if left_out else "")


def answers_of(body: Any, n_requested: int | None = None) -> list[LoggedAnswer]:
    """The answers to one question, in the order of the log. Raises RowFault where the shape is not known.

    ``n_requested``: how many were asked for, if known.
    """
    if isinstance(body, str):
        return [LoggedAnswer(body)]
    if isinstance(body, list) and body and all(isinstance(text, str) for text in body):
        return _texts(body, n_requested)
    if isinstance(body, list) and body and all(_is_message(message) for message in body):
        _texts(body, n_requested)
        return [_message(message, None) for message in body]
    if isinstance(body, Mapping):
        if "choices" in body:
            return _choices(body["choices"])
        if isinstance(body.get("candidates"), list):
            return [_candidate(candidate) for candidate in body["candidates"]]
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
    listed = objects_in(message.get("content"))
    typed = [{**part, "type": next((kinds[key] for key in kinds if key in part), "other")} for part in listed]
    return {**message, "content": typed}


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("role") == "assistant" and "content" in value


def _candidate(candidate: Any) -> LoggedAnswer:
    """Of Gemini: the parts with text that are no thoughts."""
    if not isinstance(candidate, Mapping):
        raise RowFault(Reason.BAD_VALUE, f"a candidate is a {type(candidate).__name__}, not an object")
    content = candidate.get("content")
    parts = objects_in(content.get("parts")) if isinstance(content, Mapping) else []
    texts = [part["text"] for part in parts if part.get("text") is not None and not part.get("thought")]
    if not all(isinstance(text, str) for text in texts):
        raise RowFault(Reason.BAD_VALUE, "a part of a candidate holds a text that is not a string")
    called = any(part.get("functionCall") or part.get("function_call") for part in parts)
    end = candidate.get("finishReason", candidate.get("finish_reason"))
    return LoggedAnswer("".join(texts), end, candidate.get("index"), called_tool=called)


def _texts(texts: list[Any], n_requested: int | None) -> list[LoggedAnswer]:
    """A list of texts may be the answers of a function, or the pieces of one that came as a stream."""
    if len(texts) != (n_requested or 1):
        reason = "n is missing in the inputs" if n_requested is None else f"n in the inputs is {n_requested}"
        raise RowFault(Reason.BAD_VALUE, f"the output is a list of {len(texts)} texts, but {reason}")
    return [LoggedAnswer(text) for text in texts]


def _choices(choices: Any) -> list[LoggedAnswer]:
    if choices is None:
        raise RowFault(Reason.MISSING_FIELD, "choices is missing")
    choices = objects_of(choices, "choices")
    # vLLM can log the tokens of its prompt with each choice: what a request asked, seen from its answers.
    prompts = [choice["prompt_token_ids"] for choice in choices if choice.get("prompt_token_ids")]
    if any(prompt != prompts[0] for prompt in prompts):
        raise RowFault(Reason.BAD_VALUE, "the choices answer different prompts")
    return [_choice(choice) for choice in choices]


def _choice(choice: Mapping[str, Any]) -> LoggedAnswer:
    end, index = choice.get("finish_reason"), choice.get("index")
    message = choice.get("message")
    if isinstance(message, Mapping):
        return _message(message, end, index)
    if message is None and "text" in choice:
        return LoggedAnswer(choice["text"], end, index)
    raise RowFault(Reason.MISSING_FIELD, "a choice has neither message nor text")


def _message(message: Mapping[str, Any], end: Any, index: Any = None) -> LoggedAnswer:
    parts = _Parts(message.get("content"))
    called = bool(message.get("tool_calls") or message.get("function_call")) or parts.called_tool
    refused = bool(message.get("refusal")) or parts.refused
    return LoggedAnswer(parts.text, end, index, refused=refused, called_tool=called)


def _response(body: Mapping[str, Any]) -> LoggedAnswer:
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
    return LoggedAnswer("".join(texts), end, refused=refused, called_tool=called)


def _generations(prompts: Any) -> list[LoggedAnswer]:
    if not isinstance(prompts, list) or not all(isinstance(candidates, list) for candidates in prompts):
        raise RowFault(Reason.BAD_VALUE, "generations is not a list of lists")
    if len(prompts) != 1:
        raise RowFault(Reason.BAD_VALUE, f"generations answers {len(prompts)} prompts, not 1")
    answers = []
    for index, item in enumerate(prompts[0]):
        if not isinstance(item, Mapping):
            raise RowFault(Reason.BAD_VALUE, f"generation {index} is a {type(item).__name__}, not an object")
        info, message = item.get("generation_info"), item.get("message")
        end = info.get("finish_reason") if isinstance(info, Mapping) else None
        message = message.get("kwargs", message) if isinstance(message, Mapping) else {}
        called = isinstance(message, Mapping) and bool(message.get("tool_calls"))
        answers.append(LoggedAnswer(item.get("text"), end, called_tool=called))
    return answers


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
