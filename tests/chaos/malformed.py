"""Lines that no writer of logs meant to write, from a seed: as many as are asked for, one at a time.

Four kinds take turns. Of the first three none can be scored: bytes, text of any script, and a real record cut
off. The fourth is a real record of any format with values exchanged, of which some stay sound.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

# Surrogates and control characters among them: a line is escaped where it could not be written.
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
POOL = 400


@dataclass(frozen=True)
class Line:
    """``hopeless``: it cannot be scored, whatever a reader makes of it. ``blank``: it holds nothing."""

    raw: bytes
    hopeless: bool

    @property
    def blank(self) -> bool:
        try:
            return not self.raw.decode().removeprefix("\ufeff").strip()
        except UnicodeDecodeError:
            return False


def malformed(records: Sequence[bytes], number: int, seed: int) -> Iterator[Line]:
    """``records``: real lines, whose ids are nobody else's."""
    draw, pool = Random(seed), _drawn_values()
    makers = (_bytes, _text, _cut, _exchanged)
    for place in range(number):
        line = makers[place % len(makers)](draw, records, pool)
        yield Line(line.raw.replace(b"\n", b" "), line.hopeless)


def _drawn_values() -> list[Any]:
    """Always the same values, which Hypothesis finds interesting."""
    pool: list[Any] = []

    @settings(
        max_examples=POOL, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(VALUES)
    def collect(value: Any) -> None:
        pool.append(value)

    collect()
    return pool


def _bytes(draw: Random, records: Sequence[bytes], pool: Sequence[Any]) -> Line:
    raw = draw.randbytes(draw.randrange(200))
    # What is an object by chance would be a record after all.
    return Line(raw.replace(b"{", b"("), True)


def _text(draw: Random, records: Sequence[bytes], pool: Sequence[Any]) -> Line:
    value = draw.choice(pool)
    raw = json.dumps(value) if draw.random() < 0.5 else repr(value)
    return Line(raw.encode("utf-8", "surrogatepass"), True)


def _cut(draw: Random, records: Sequence[bytes], pool: Sequence[Any]) -> Line:
    record = draw.choice(records)
    return Line(record[: draw.randrange(1, len(record))], True)


def _exchanged(draw: Random, records: Sequence[bytes], pool: Sequence[Any]) -> Line:
    record = copy.deepcopy(json.loads(draw.choice(records)))
    for _ in range(draw.randrange(1, 4)):
        _exchange(draw, record, copy.deepcopy(draw.choice(pool)))
    return Line(json.dumps(record).encode(), False)


def _exchange(draw: Random, node: Any, value: Any) -> None:
    """Put the value somewhere into the tree, or take away what is there."""
    while True:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not places:
            return
        place = draw.choice(places)
        if isinstance(node[place], dict | list) and draw.random() < 0.7:
            node = node[place]
            continue
        if draw.random() < 0.2:
            del node[place]
        else:
            node[place] = value
        return
