"""Rows are dealt out by a hash of their id: equal ids always meet, whichever file, run or day they come from.

The hash space is cut into a power of two of equal parts, so that the parts of a finer cut lie whole in those
of a coarser one: files that were written for one number of buckets can be read by another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

BITS = 32
_NAME = re.compile(r"bucket-(?P<number>\d+)-of-(?P<of>\d+)")


def place_of(key: str) -> int:
    """Where a key stands in the hash space, in [0, 2**32)."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big")


def power_of_two(wanted: float) -> int:
    """The smallest power of two that is not below ``wanted``; at least 1."""
    parts = 1
    while parts < wanted and parts < 2**BITS:
        parts *= 2
    return parts


@dataclass(frozen=True)
class Bucket:
    """Part ``number`` (from 0) of the hash space cut into ``of`` parts, a power of two."""

    number: int
    of: int

    @property
    def name(self) -> str:
        return f"bucket-{self.number:04d}-of-{self.of:04d}"

    @classmethod
    def in_name(cls, name: str) -> Bucket | None:
        """The bucket that a file is named after; None for a file that somebody else wrote."""
        found = _NAME.match(name)
        return None if found is None else cls(int(found["number"]), int(found["of"]))

    def holds(self, place: int) -> bool:
        return place * self.of >> BITS == self.number

    def parts(self, of: int) -> range:
        """The parts of a cut into ``of`` that have something in common with this bucket."""
        if of >= self.of:
            finer = of // self.of
            return range(self.number * finer, (self.number + 1) * finer)
        return range(self.number * of // self.of, self.number * of // self.of + 1)

    def meets(self, other: Bucket) -> bool:
        return other.number in self.parts(other.of)

    def covers(self, other: Bucket) -> bool:
        """Whether all that ``other`` holds is here."""
        return other.of >= self.of and self.meets(other)
