"""The fault of one row: a reason for the quarantine table, and a detail without log content."""

from __future__ import annotations

from typing import Any

from sgpu.logs.records import Reason


class RowFault(Exception):
    """Raised where a row is read; becomes a Rejected. ``detail`` names the field, the value and the bound."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def shown(value: Any) -> str:
    """A value for a message: ASCII, cut. A container may hold an answer: only its type is told."""
    if isinstance(value, dict | list | tuple | bytes):
        return f"a {type(value).__name__}"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
