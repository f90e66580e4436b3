"""A logged question as messages that may be sent to a server.

Logs are untrusted. A picture's address would make the server fetch it, so that only text is sent on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sgpu.logs.rows.fields import storable

ROLES = ("system", "developer", "user", "assistant")
MAX_MESSAGES = 200
MAX_CHARACTERS = 200_000  # of all messages together

Messages = list[dict[str, str]]


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
    messages = [_message(turn, place) for place, turn in enumerate(turns)]
    characters = sum(len(one["content"]) for one in messages)
    if characters > MAX_CHARACTERS:
        raise UnusablePromptError(f"the question has {characters} characters, above {MAX_CHARACTERS}")
    return messages


def _message(turn: Any, place: int) -> dict[str, str]:
    if not isinstance(turn, Mapping) or turn.get("role") not in ROLES:
        raise UnusablePromptError(f"message {place} has none of the roles {', '.join(ROLES)}")
    text = _text(turn.get("content"))
    if text is None or turn.get("tool_calls"):
        raise UnusablePromptError(f"message {place} holds something else than text")
    if not storable(text):
        raise UnusablePromptError(f"message {place} holds half of a surrogate pair")
    return {"role": turn["role"], "content": text}


def _text(content: Any) -> str | None:
    """Text, or parts that are all text; None for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    texts = [
        part["text"]
        for part in content
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if len(texts) == len(content) else None
