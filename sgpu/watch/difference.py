"""Two sets of rows compared: how large the difference is, and how likely chance alone makes one so large."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """``statistic`` has the p-value ``p``; ``effect`` does not grow with the number of rows."""

    statistic: float
    effect: float
    p: float
