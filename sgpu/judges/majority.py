"""From the votes on N answers to the label of the response set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Majority(NamedTuple):
    """``label`` 1, 0 or None (no vote could be read); ``tie``: the readable votes stood equal."""

    label: int | None
    n_missing: int
    tie: bool


def majority(votes: Sequence[bool | None]) -> Majority:
    """Strict majority over the readable votes; a tie is 0 (the paper is silent on 10 of 20)."""
    readable = [vote for vote in votes if vote is not None]
    n_missing = len(votes) - len(readable)
    if not readable:
        return Majority(None, n_missing, False)
    twice_right = 2 * sum(readable)
    return Majority(int(twice_right > len(readable)), n_missing, twice_right == len(readable))
