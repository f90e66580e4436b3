"""What was asked: its fingerprint, and the key that brings the single answers to one question together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sgpu.scoring.rows.fields import mapping_of, text_of
from sgpu.scoring.rows.json_text import structured

# The settings of a request that change what is drawn; a seed and a count do not change the distribution.
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "logit_bias",
    "response_format",
    "reasoning_effort",
    "tools",
    "instructions",
    "suffix",
)
_NOT_SAMPLING = ("seed", "n")


@dataclass(frozen=True)
class Question:
    """``content``: text, or a list of chat messages; None where it was not logged.

    ``images``: hashes or addresses of images beside the messages. ``whole``: the content can be sent to a
    model again as it is.
    """

    content: Any = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    group_id: str | None = None
    whole: bool = True

    @property
    def sha256(self) -> str | None:
        """Of the content and its images, as canonical JSON."""
        if not self.content:
            return None
        return sha256_of([self.content, *self.images] if self.images else self.content)

    @property
    def json(self) -> str | None:
        """The content as JSON, where it can be asked again; images that the log does not hold cannot."""
        return canonical(self.content) if self.content and self.whole and not self.images else None

    def group_key(self, model: str) -> str | None:
        """sha256 of model and group id, else of model, content, images and sampling without seed and count.

        The model is part of both: answers of two models are never one set.
        """
        if self.group_id is not None:
            return sha256_of(["group_id", model, self.group_id])
        if not self.content:
            return None
        kept = {key: value for key, value in self.sampling.items() if key not in _NOT_SAMPLING}
        settings = {key: value for key, value in kept.items() if value is not None}
        return sha256_of(["question", model, self.content, sorted(self.images), settings])


def question_of_body(body: Mapping[str, Any]) -> Question:
    """The question of an OpenAI request: chat messages, a completion's prompt, or a response's input."""
    content = next((body[key] for key in ("messages", "prompt", "input") if body.get(key)), None)
    sampling = {key: body[key] for key in SAMPLING if key in body}
    group_id = text_of(mapping_of(body.get("metadata")).get("group_id"), "metadata.group_id")
    content = structured(content) if "messages" in body else content
    return Question(content, sampling, group_id=group_id, whole=is_whole(content))


def is_whole(content: Any) -> bool:
    """Text, or chat messages with a role and a content each."""
    if isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(one, Mapping) and isinstance(one.get("role"), str) and "content" in one for one in content
    )


def canonical(value: Any) -> str:
    """JSON with sorted keys and without spaces; ASCII, so that half surrogates pass."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def sha256_of(value: Any) -> str:
    """Of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _plain(value: Any) -> str:
    """What Parquet knows and JSON does not."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return value.isoformat() if isinstance(value, date) else str(value)
