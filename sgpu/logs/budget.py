"""How much of one log file a night reads: rows, what they unpack to, and time.

A kilobyte may unpack to millions of rows, and each costs more than it took to write. What lies behind a bound
is not read; the file is told with its unread bytes (reason `over_budget`), and the others go on.
"""

from __future__ import annotations

import math
import time

from pydantic import Field

from sgpu.logs.pinned_file import FileFault
from sgpu.logs.records import Reason
from sgpu.logs.snapshot import Split
from sgpu.study.specs import Strict

GIB = 2**30
REJECTED_ROWS = 10_000  # of a file; what more are rejected stand in quarantine as one row with their number
LEAST_REJECTED = 100  # of a part of a file


class FileBounds(Strict):
    """What a file of up to 1 GiB may take; a larger one in proportion. ``ratio``: of unpacked to packed
    bytes, above 1 GiB. ``minutes``: of computing, without waiting for storage.
    """

    rows: int = Field(default=10_000_000, ge=1)
    unpacked_gb: float = Field(default=64, gt=0)
    ratio: float = Field(default=200, ge=1)
    minutes: float = Field(default=30, gt=0)


BOUNDS = FileBounds()


class FileBudget:
    """What is left for one split of a file of ``size`` bytes."""

    def __init__(self, bounds: FileBounds, size: int, split: Split) -> None:
        part = share(size, split)
        scale = max(1.0, size / GIB) * part
        self._rows = math.ceil(bounds.rows * scale)
        self._unpacked = math.ceil(bounds.unpacked_gb * GIB * scale)
        self._ratio = bounds.ratio
        self._by_ratio = max(GIB, int(bounds.ratio * size))
        self._seconds = bounds.minutes * 60 * scale
        self._ends = time.thread_time() + self._seconds
        self._bytes = self._n_rows = 0

    def unpacked(self, size: int) -> None:
        """So many bytes more. Raises FileFault (OVER_BUDGET)."""
        self._bytes += size
        if self._bytes > self._unpacked:
            raise FileFault(Reason.OVER_BUDGET, f"it unpacks to more than {self._unpacked} bytes")
        if self._bytes > self._by_ratio:
            detail = f"it unpacks to more than {self._by_ratio} bytes, {self._ratio:g} times its size"
            raise FileFault(Reason.OVER_BUDGET, detail)
        self._check_time()

    def row(self) -> None:
        """One row more. Raises FileFault (OVER_BUDGET)."""
        self._n_rows += 1
        if self._n_rows > self._rows:
            raise FileFault(Reason.OVER_BUDGET, f"it has more than {self._rows} rows")
        self._check_time()

    def _check_time(self) -> None:
        if time.thread_time() > self._ends:
            raise FileFault(Reason.OVER_BUDGET, f"it took more than {self._seconds:.0f} s of computing")


def share(size: int, split: Split) -> float:
    """The part of a file that a split is."""
    return (split.end - split.start) / size if size else 1.0


def rejected_rows(size: int, split: Split) -> int:
    """How many rejected rows of a split stand in quarantine one by one."""
    return max(LEAST_REJECTED, int(REJECTED_ROWS * share(size, split)))
