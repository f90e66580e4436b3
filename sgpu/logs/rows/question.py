"""What was asked: its fingerprint, the key that brings single answers to it together, and its messages.

Logs are untrusted. A picture's address would make a server fetch it, so that only text is sent on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from sgpu.hashing import canonical_json, sha256_hex
from sgpu.logs.records import Reason
from sgpu.logs.rows.fields import RowFault, mapping_of, structured, text_of
from sgpu.storage.json_lines import storable

# The settings among the arguments of a function that is no provider's request; the others are its question.
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "stop", "logit_bias", "response_format",
    "reasoning_effort", "tools", "instructions", "suffix",
)  # fmt: skip
_NOT_SAMPLING = ("seed", "n")
# All else in a request may change what is drawn: providers add settings, and a set of answers to different
# questions is worse than one that is not found. These are known to change nothing of it.
_NO_MATTER = frozenset((
    "n", "seed", "stream", "stream_options", "include", "logprobs", "top_logprobs", "prompt_logprobs",
    "return_token_ids", "return_tokens_as_token_ids", "user", "user_id", "safety_identifier", "metadata",
    "request_id", "trace_id", "span_id", "session_id", "store", "service_tier", "priority", "background",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "cache_salt", "timeout",
    "extra_headers", "extra_query",
))  # fmt: skip
# Settings that name what a model answers to beyond the content: without it the question is another one.
COMPACTED = "conversation.compacted"  # OpenTelemetry: earlier messages were replaced by a summary
_CONTEXT = (
    "previous_response_id", "previous_response.id", "conversation", COMPACTED, "instructions", "suffix",
)  # fmt: skip
ROLES = ("system", "developer", "user", "assistant")
MAX_MESSAGES = 200
MAX_CHARACTERS = 200_000  # of all messages together
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class LoggedQuestion:
    """``content``: text, or a list of chat messages; None where it was not logged.

    ``images``: hashes or addresses of images beside the messages. ``whole``: the content can be sent to a
    model again as it is. ``moving``: it was asked in a conversation that the server keeps, so that the same
    words are another question the next time.
    """

    content: Any = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    group_id: str | None = None
    whole: bool = True
    moving: bool = False

    @property
    def sha256(self) -> str | None:
        """Of the content and its images, as canonical JSON."""
        if not self.content:
            return None
        return sha256_of([self.content, *self.images] if self.images else self.content)

    @property
    def json(self) -> str | None:
        """The content as JSON, where it can be asked again: without images or context that the log lacks."""
        in_context = any(self.sampling.get(key) for key in _CONTEXT)
        askable = self.content and self.whole and not self.images and not in_context
        return canonical(self.content) if askable else None

    def group_key(self, model: str) -> str | None:
        """sha256 of model and group id, else of model, content, images and sampling without seed and count.

        The model is part of both: answers of two models are never one set.
        """
        if self.group_id is not None:
            return sha256_of(["group_id", model, self.group_id])
        if not self.content or self.moving or self.sampling.get(COMPACTED):
            return None
        sampling = {key: value for key, value in self.sampling.items() if key not in _NOT_SAMPLING}
        settings = {key: value for key, value in sampling.items() if value is not None}
        return sha256_of(["question", model, self.content, sorted(self.images), settings])


def question_of_body(body: Mapping[str, Any]) -> LoggedQuestion:
    """The question of an OpenAI request: chat messages, a completion's prompt, or a response's input.

    Its settings are all else that the body holds, but for what changes no answer.
    """
    content_key = next((key for key in ("messages", "prompt", "input") if body.get(key)), "messages")
    content, used = body.get(content_key), {content_key, "model"}
    content = structured(content) if "messages" in body else content
    if content_key == "prompt" and isinstance(content, Mapping) and body.get("input"):
        content = {"prompt": content, "input": body["input"]}  # a template that the server keeps
        used.add("input")
    # Without a model these are the arguments of some function, where `user` may be what the user said.
    is_request = "model" in body
    ignored = _NO_MATTER if is_request else _NOT_SAMPLING
    return LoggedQuestion(
        content or None,
        {key: value for key, value in body.items() if key not in used and key not in ignored},
        group_id=text_of(mapping_of(body.get("metadata")).get("group_id"), "metadata.group_id"),
        whole=is_whole(content),
        moving=is_request and bool(body.get("conversation")),
    )


def question_of_request(request: Any, settings: Mapping[str, Any] | None = None) -> LoggedQuestion:
    """The question of a request to any provider, with settings that stand beside it.

    Text, messages, or a body: OpenAI's (`question_of_body`), Anthropic's (`system`), Gemini's (`contents`).
    """
    if isinstance(request, str | list):
        return LoggedQuestion(request or None, settings or {}, whole=is_whole(request))
    if not isinstance(request, Mapping):
        return LoggedQuestion(sampling=settings or {})
    body = {**(settings or {}), **request}
    if body.get("contents"):
        sampling = {key: value for key, value in body.items() if key not in ("contents", "model")}
        return LoggedQuestion(body["contents"], sampling, whole=False)
    system, messages = body.get("system"), structured(body.get("messages"))
    if isinstance(system, str) and isinstance(messages, list):
        messages = [{"role": "system", "content": system}, *messages]
        body = {key: value for key, value in body.items() if key != "system"} | {"messages": messages}
    question = question_of_body({"model": None, **body})
    return question if system is None or isinstance(system, str) else replace(question, whole=False)


def several_questions(body: Mapping[str, Any]) -> str | None:
    """Why what answers a request is no set: it may ask a list of prompts. None where it asks one question."""
    for key, is_one in (("prompt", _is_prompt), ("prompts", _is_prompt), ("messages", _is_conversation)):
        prompts = body.get(key)
        if isinstance(prompts, list) and len(prompts) > 1 and all(is_one(prompt) for prompt in prompts):
            return f"the request asks {len(prompts)} questions, not 1"
    return None


def refuse_several(body: Mapping[str, Any]) -> None:
    """Raise RowFault where `several_questions` finds more than one."""
    if several := several_questions(body):
        raise RowFault(Reason.BAD_VALUE, several)


def _is_prompt(value: Any) -> bool:
    """Text, or the numbers of its tokens; a number alone is a token of a prompt, an object one message."""
    return isinstance(value, str | list)


def _is_conversation(value: Any) -> bool:
    """A list of messages; a pair of role and text is one message."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, Mapping) for message in value)


def is_whole(content: Any) -> bool:
    """Text, or chat messages with a role and a content each."""
    if isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(message, Mapping) and isinstance(message.get("role"), str) and "content" in message
        for message in content
    )


def canonical(value: Any) -> str:
    """JSON with sorted keys and without spaces; ASCII, so that half surrogates pass."""
    return canonical_json(value, default=_plain)


def sha256_of(value: Any) -> str:
    """Of the canonical JSON, in hexadecimal."""
    return sha256_hex(canonical(value))


def _plain(value: Any) -> str:
    """What Parquet knows and JSON does not."""
    if isinstance(value, bytes):
        return sha256_hex(value)
    return value.isoformat() if isinstance(value, date) else str(value)


class UnusablePromptError(Exception):
    """Why a question cannot be asked again; its text is not in the message."""


def messages_of(prompt: str) -> Messages:
    """The messages of ``LogRecord.prompt``: JSON of a text or of a list of messages.

    Raises UnusablePromptError.
    """
    try:
        content = json.loads(prompt)
    except (ValueError, RecursionError):
        raise UnusablePromptError("the question is not JSON") from None
    turns = [{"role": "user", "content": content}] if isinstance(content, str) else content
    if not isinstance(turns, list) or not turns:
        raise UnusablePromptError("the question is neither text nor a list of messages")
    if len(turns) > MAX_MESSAGES:
        raise UnusablePromptError(f"the question has {len(turns)} messages, above {MAX_MESSAGES}")
    messages = [_message(turn, index) for index, turn in enumerate(turns)]
    characters = sum(len(message["content"]) for message in messages)
    if characters > MAX_CHARACTERS:
        raise UnusablePromptError(f"the question has {characters} characters, above {MAX_CHARACTERS}")
    return messages


def last_user_text(prompt: str) -> str | None:
    """Return what the user asked last in ``LogRecord.prompt``.

    None if that is not text, if the user says nothing, or if any message is a tool's, which `messages_of`
    refuses: answers drawn from a tool's output are not answers to the question alone.

    >>> last_user_text('[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]')
    'Why?'
    """
    try:
        messages = messages_of(prompt)
    except UnusablePromptError:
        return None
    return next((m["content"] for m in reversed(messages) if m["role"] == "user"), None) or None


def _message(turn: Any, index: int) -> dict[str, str]:
    if not isinstance(turn, Mapping) or turn.get("role") not in ROLES:
        raise UnusablePromptError(f"message {index} has none of the roles {', '.join(ROLES)}")
    content = turn.get("content")
    text = content if isinstance(content, str) else text_of_parts(content, "text")
    if text is None or turn.get("tool_calls"):
        raise UnusablePromptError(f"message {index} holds something else than text")
    if not storable(text):
        raise UnusablePromptError(f"message {index} contains an invalid Unicode surrogate")
    return {"role": turn["role"], "content": text}


def text_of_parts(parts: Any, key: str) -> str | None:
    """The texts of parts, under ``key``, where all are text; None for anything else."""
    if not isinstance(parts, list) or not parts:
        return None
    texts = [
        part[key]
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get(key), str)
    ]
    return "".join(texts) if len(texts) == len(parts) else None
