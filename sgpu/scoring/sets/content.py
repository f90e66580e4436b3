"""What was answered, as a hash: by it a delivery is known to be the same again, or the same and more."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any


def content_sha256(model: str | None, texts: Sequence[str]) -> str:
    """sha256 of a model's name and answers, in whatever order these stand."""
    return ordered_sha256(model, sorted(map(_sha256, texts)))


def ordered_sha256(model: str | None, texts: Sequence[str]) -> str:
    """sha256 of a model's name and texts, each with its length, so that no two lists look alike.

    Tables that version 0.1 wrote know answers by it.
    """
    digest = hashlib.sha256()
    for text in (model or "", *texts):
        _add(digest, text)
    return digest.hexdigest()


def part_with(content: str, model: str | None, texts: Sequence[str]) -> int | None:
    """How many of the first answers have this content, as either of the others says; None if none have."""
    ordered, hashes = hashlib.sha256(), list[str]()
    _add(ordered, model or "")
    for n, text in enumerate(texts[:-1], start=1):
        _add(ordered, text)
        hashes.append(_sha256(text))
        if content in (ordered.hexdigest(), ordered_sha256(model, sorted(hashes))):
            return n
    return None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _add(digest: Any, text: str) -> None:
    payload = text.encode("utf-8", "surrogatepass")
    digest.update(len(payload).to_bytes(8, "big") + payload)
