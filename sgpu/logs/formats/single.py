"""SGPU's own schema with ONE answer a row: N such rows to one question are brought together later.

    {"request_id": "r-1", "timestamp": 1795219141, "model": "m", "prompt": "...", "text": "...",
     "sampling": {"temperature": 1.0}, "group_id": null}

The answer is ``text``, or the only one of ``samples``. Rows belong together by group_id (of the row or of its
metadata), else by model, question, images and sampling; a row with neither cannot be grouped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sgpu.logs.formats.sgpu import is_own, is_single, known_of, request_of
from sgpu.logs.records import Item
from sgpu.logs.rows.assembly import assemble
from sgpu.logs.rows.fields import checked


class SingleAnswers:
    """Rows with one answer, each with the key of its group."""

    name = "single"

    def recognises(self, record: dict[str, Any]) -> bool:
        return is_own(record) and is_single(record)

    def items(self, record: dict[str, Any]) -> Iterator[Item]:
        yield checked(lambda: assemble(request_of(record, groups=True)), **known_of(record))
