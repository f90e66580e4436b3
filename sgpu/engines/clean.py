"""From what a model wrote to the answer that is judged and embedded; the same rule for every engine."""

from __future__ import annotations

from collections.abc import Sequence


def clean_answer(raw_text: str, stop: Sequence[str] = ()) -> str:
    """``raw_text`` up to the earliest of the ``stop`` strings, without surrounding white space."""
    ends = [position for mark in stop if mark and (position := raw_text.find(mark)) >= 0]
    return raw_text[: min(ends, default=len(raw_text))].strip()
