"""Under which names telemetry keeps what was asked and answered: one convention a class, tried in turn.

* OpenTelemetry's GenAI conventions: `gen_ai.input.messages`, `gen_ai.output.messages`: a role and parts, of
  which those of type text are the text. Source: open-telemetry/semantic-conventions-genai,
  gen-ai-input-messages.json and gen-ai-output-messages.json.
* OpenLLMetry to 0.4x: `gen_ai.prompt.N.content`, `gen_ai.completion.N.content`, one completion a choice.
* OpenInference (Phoenix, Arize): `output.value` is the provider's whole response, `llm.output_messages.N.*`
  its messages; `input.value`, `llm.input_messages.N.*` and `llm.invocation_parameters` are what was asked.
  Text completions have `llm.choices.N.completion.text` and `llm.prompts.N.prompt.text` instead of messages.

What asks a model and has content under another name is not passed over: `unknown_content` finds that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sgpu.logs.records import Reason
from sgpu.logs.rows.answers import LoggedAnswer, answers_of
from sgpu.logs.rows.fields import RowFault, count_of, mapping_of, objects_of, structured, text_of
from sgpu.logs.rows.question import (
    COMPACTED,
    LoggedQuestion,
    is_whole,
    question_of_body,
    refuse_several,
    text_of_parts,
)

Attributes = Mapping[str, Any]
REDACTED = "__REDACTED__"  # what OpenInference writes in the place of content that is not to be kept
_NUMBERED_KEY = re.compile(r"(?P<number>[0-9]{1,5})\.(?P<name>.+)", re.DOTALL)
_ANSWERING_ROLES = (None, "", "assistant", "model", "ai")
# Words of names that hold an answer. `response` is in many names of other things: there the value decides.
_CONTENT = re.compile(
    r"(?:^|[._])(?:completions?|outputs?|answers?|choices?|generations?|reply|contents?|text)(?:$|[._])"
)
_MAYBE_CONTENT = re.compile(r"(?:^|[._])(?:responses?|results?|messages?)(?:$|[._])")
_NO_CONTENT = re.compile(
    r"^(?:http|net|url|server|rpc|db|exception|error|messaging|faas|k8s|telemetry|service|code)\."
    r"|(?:^|[._])(?:usage|tokens?|ids?|model|type|format|finish_reasons?|stop_reason|role|count|request|input"
    r"|prompts?|status|headers?|cost|latency|duration|time|version|name|size|length|fingerprint|service_tier"
    r"|truncation|safety)(?:$|[._])|(?:mime|content|output)_type$"
)
_REQUEST = "gen_ai.request."
_NOT_SAMPLING = ("model", "seed", "choice.count", "stream")
_GENAI_ROLES = (None, "assistant", "model")


def sampling_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a request, without those that do not change an answer."""
    sampling = {
        key.removeprefix(_REQUEST): value
        for key, value in attributes.items()
        if key.startswith(_REQUEST) and key.removeprefix(_REQUEST) not in _NOT_SAMPLING
    }
    if tools := attributes.get("gen_ai.tool.definitions"):
        sampling["tools"] = structured(tools)
    if attributes.get(f"gen_ai.{COMPACTED}"):
        sampling[COMPACTED] = True
    return sampling


def _answer(message: Mapping[str, Any], end: Any) -> LoggedAnswer:
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
    return LoggedAnswer("".join(texts), message.get("finish_reason") or end, called_tool="tool_call" in kinds)


def _chat(system: Any, messages: Any) -> list[dict[str, str]] | None:
    """The question as chat messages of text; None where it has parts of another kind."""
    if not isinstance(messages, list):
        return None
    turns = [{"role": "system", "parts": system}, *messages] if system else messages
    chat = [_turn(turn) for turn in turns]
    whole = [message for message in chat if message is not None]
    return whole if len(whole) == len(chat) else None


def _turn(message: Any) -> dict[str, str] | None:
    if not isinstance(message, Mapping):
        return None
    role, text = message.get("role"), text_of_parts(message.get("parts"), "content")
    return {"role": role, "content": text} if isinstance(role, str) and text is not None else None


class GenAI:
    """The structured messages of the GenAI conventions.

    What every convention does: reads the attributes of a span; `answers` and `question` raise RowFault.
    """

    def holds(self, attributes: Attributes) -> bool:
        """Whether there are answers under the names of this convention."""
        return bool(structured(attributes.get("gen_ai.output.messages")))

    def answers(self, attributes: Attributes) -> list[LoggedAnswer]:
        """One answer per message."""
        name = "gen_ai.output.messages"
        output = objects_of(structured(attributes.get(name)), name)
        messages = [message for message in output if message.get("role") in _GENAI_ROLES]
        ends = structured(attributes.get("gen_ai.response.finish_reasons"))
        # There is one reason per generation. Messages may have been filtered or truncated, and then nothing
        # says which reason belongs to which message.
        if not isinstance(ends, list) or len(ends) != len(messages):
            ends = [None] * len(messages)
        return [_answer(message, end) for message, end in zip(messages, ends, strict=True)]

    def question(self, attributes: Attributes) -> LoggedQuestion:
        """What was asked, where it was logged."""
        system = structured(attributes.get("gen_ai.system_instructions"))
        messages = structured(attributes.get("gen_ai.input.messages"))
        sampling = sampling_of(attributes)
        group_id = text_of(attributes.get("group_id"), "group_id")
        if not messages:
            return LoggedQuestion(sampling=sampling, group_id=group_id)
        chat = _chat(system, messages)
        content = chat if chat is not None else {"system": system, "messages": messages}
        return LoggedQuestion(content, sampling, group_id=group_id, whole=chat is not None)

    def n_requested(self, attributes: Attributes) -> int | None:
        """How many answers were asked for, where that is told."""
        return count_of(attributes.get("gen_ai.request.choice.count"), "gen_ai.request.choice.count")


class Numbered(GenAI):
    """OpenLLMetry's numbered attributes."""

    def holds(self, attributes: Attributes) -> bool:
        return any(key.startswith("gen_ai.completion.") for key in attributes)

    def answers(self, attributes: Attributes) -> list[LoggedAnswer]:
        return _answers(_numbered(attributes, "gen_ai.completion."))

    def question(self, attributes: Attributes) -> LoggedQuestion:
        sampling = sampling_of(attributes)
        sampling |= {key: attributes[key] for key in attributes if key.startswith("llm.request.functions.")}
        return _question(_numbered(attributes, "gen_ai.prompt."), sampling, attributes)


class OpenInference(GenAI):
    """The provider's response, else the messages or completions that were made of it."""

    def holds(self, attributes: Attributes) -> bool:
        value = attributes.get("output.value")
        listed = any(key.startswith(("llm.output_messages.", "llm.choices.")) for key in attributes)
        return listed or value not in (None, "", REDACTED)

    def answers(self, attributes: Attributes) -> list[LoggedAnswer]:
        messages = _numbered(attributes, "llm.output_messages.", "message.") or _completions(
            attributes, "llm.choices.", "completion."
        )
        value = structured(attributes.get("output.value"))
        if isinstance(value, Mapping):
            try:
                return answers_of(value, self.n_requested(attributes))
            except RowFault as fault:
                if fault.reason is not Reason.UNKNOWN_FORMAT or not messages:
                    raise
        if messages:
            end = attributes.get("llm.finish_reason") if len(messages) == 1 else None
            return _answers([{"finish_reason": end, **message} for message in messages])
        return answers_of(value, self.n_requested(attributes))

    def question(self, attributes: Attributes) -> LoggedQuestion:
        body = mapping_of(attributes.get("input.value"))
        sampling = mapping_of(attributes.get("llm.invocation_parameters"))
        if any(body.get(key) for key in ("messages", "prompt", "input")):
            refuse_several(body)
            return question_of_body({**sampling, **body})
        used = {key: value for key, value in sampling.items() if key not in ("model", "n", "seed", "stream")}
        if prompts := [prompt["content"] for prompt in _completions(attributes, "llm.prompts.", "prompt.")]:
            refuse_several({"prompt": prompts})
            group_id = text_of(attributes.get("group_id"), "group_id")
            return LoggedQuestion(prompts[0], used, group_id=group_id, whole=is_whole(prompts[0]))
        return _question(_numbered(attributes, "llm.input_messages.", "message."), used, attributes)

    def n_requested(self, attributes: Attributes) -> int | None:
        for name in ("llm.invocation_parameters", "input.value"):
            if (n := mapping_of(attributes.get(name)).get("n")) is not None:
                return count_of(n, f"n of {name}")
        return None


CONVENTIONS = (GenAI(), Numbered(), OpenInference())


def convention_of(attributes: Attributes) -> GenAI | None:
    """The convention under whose names there are answers."""
    return next((convention for convention in CONVENTIONS if convention.holds(attributes)), None)


def unknown_content(attributes: Attributes) -> str | None:
    """The name of an attribute that looks like an answer; None where there is none.

    For a span that asks a model and whose answers no convention finds.
    """
    return next((key for key, value in attributes.items() if _may_hold_an_answer(key, value)), None)


def _may_hold_an_answer(key: str, value: Any) -> bool:
    if not isinstance(value, str | list | dict) or not value or value == REDACTED or _NO_CONTENT.search(key):
        return False
    if _CONTENT.search(key):
        return True
    prose = not isinstance(value, str) or value.lstrip()[:1] in ("{", "[") or bool(re.search(r"\s", value))
    return prose and _MAYBE_CONTENT.search(key) is not None


def _numbered(attributes: Attributes, prefix: str, inner: str = "") -> list[dict[str, Any]]:
    """The attributes ``prefix`` N . ``inner`` NAME as one object for each N, in the order of N."""
    listed: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix) and (parts := _NUMBERED_KEY.fullmatch(key, len(prefix))):
            listed.setdefault(int(parts["number"]), {})[parts["name"].removeprefix(inner)] = value
    return [listed[number] for number in sorted(listed)]


def _completions(attributes: Attributes, prefix: str, inner: str) -> list[dict[str, Any]]:
    """Return the texts of a completion's choices or prompts as messages without a role."""
    listed = _numbered(attributes, prefix, inner)
    return [{**text, "content": text.get("text")} for text in listed]


def _answers(messages: Iterable[Attributes]) -> list[LoggedAnswer]:
    return [
        LoggedAnswer(
            _text(message),
            message.get("finish_reason"),
            called_tool=any(key.startswith(("tool_calls.", "function_call")) for key in message),
            refused=bool(message.get("refusal")),
        )
        for message in messages
        if message.get("role") in _ANSWERING_ROLES
    ]


def _text(message: Attributes) -> Any:
    """The content, or its parts of text together."""
    if message.get("content") is not None:
        return message["content"]
    parts = _numbered(message, "contents.", "message_content.")
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "".join(texts) if texts else None


def _question(
    messages: list[dict[str, Any]], sampling: Mapping[str, Any], attributes: Attributes
) -> LoggedQuestion:
    group_id = text_of(attributes.get("group_id"), "group_id")
    if not messages:
        return LoggedQuestion(sampling=sampling, group_id=group_id)
    turns = [{"role": message.get("role"), "content": structured(_text(message))} for message in messages]
    plain = all(isinstance(turn["content"], str) for turn in turns) and is_whole(turns)
    # What is more than a role and a text, such as a picture or a call of a tool, is part of the question too.
    plain = plain and all(set(turn) <= {"role", "content", "contents.0.message_content.text",
                                        "contents.0.message_content.type"} for turn in messages)  # fmt: skip
    return LoggedQuestion(turns if plain else messages, sampling, group_id=group_id, whole=plain)
