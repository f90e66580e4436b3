"""How much of one log file a night reads: rows, and bytes of what it unpacks to.

A kilobyte may unpack to millions of rows, and each costs more than it took to write. What lies behind a bound
is not read; the file is told with its unread bytes (reason `over_budget`), and the others go on.
"""

from __future__ import annotations

import math

from pydantic import Field

from sgpu.logs.pinned_file import FileFault
from sgpu.logs.records import Reason
from sgpu.logs.snapshot import Split
from sgpu.study.specs import Strict

GIB = 2**30
REJECTED_ROWS = 10_000  # of a file; what more are rejected stand in quarantine as one row with their number
LEAST_REJECTED = 100  # of a part of a file


class FileBounds(Strict):
    """What a file of up to 1 GiB may take; a larger one in proportion."""

    rows: int = Field(default=10_000_000, ge=1)
    unpacked_gb: float = Field(default=64, gt=0)


BOUNDS = FileBounds()


class FileBudget:
    """What is left for one split of a file of ``size`` bytes."""

    def __init__(self, bounds: FileBounds, size: int, split: Split) -> None:
        scale = max(1.0, size / GIB) * share(size, split)
        self._rows = math.ceil(bounds.rows * scale)
        self._unpacked = math.ceil(bounds.unpacked_gb * GIB * scale)
        self._bytes = self._n_rows = 0

    def unpacked(self, size: int) -> None:
        """Count ``size`` bytes more. Raises FileFault (OVER_BUDGET)."""
        self._bytes += size
        if self._bytes > self._unpacked:
            raise FileFault(Reason.OVER_BUDGET, f"it unpacks to more than {self._unpacked} bytes")

    def row(self) -> None:
        """Count one row more. Raises FileFault (OVER_BUDGET)."""
        self._n_rows += 1
        if self._n_rows > self._rows:
            raise FileFault(Reason.OVER_BUDGET, f"it has more than {self._rows} rows")


def share(size: int, split: Split) -> float:
    """Return the part of a file that a split is."""
    return (split.end - split.start) / size if size else 1.0


def rejected_row_limit(size: int, split: Split) -> int:
    """Return how many rejected rows of a split stand in quarantine one by one."""
    return max(LEAST_REJECTED, int(REJECTED_ROWS * share(size, split)))
