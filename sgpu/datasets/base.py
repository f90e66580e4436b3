"""A data set turns its source into questions; it never samples, judges or splits by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sgpu.registry import Registry


@dataclass(frozen=True)
class Question:
    """One question with the answers that count as right."""

    question_id: str
    text: str
    references: tuple[str, ...]
    group: str  # rows of one group never stand on both sides of a split
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """All questions that a data set can give, with where they come from.

    ``pools`` maps "train" and "test" to their questions; one pool under "all" serves both.
    """

    name: str
    revision: str
    licence: str
    citation: str
    pools: dict[str, list[Question]]


DATASETS = Registry(
    "data set",
    {
        "worldfacts": "sgpu.datasets.worldfacts:load",
        "responses": "sgpu.datasets.responses:load",
    },
)
