"""Which rows are being worked on: tells a poison row from an unlucky one, and counts progress.

A worker that dies takes its whole block with it, and Ray retries the block for ever. The ledger sees
that a batch was begun and never ended, lets its rows run alone, and gives up on a row that has killed
its worker by itself `MAX_LONE_DEATHS` times. More than one, because on spot nodes a worker may die of
something else.

Rows that fail for a reason outside themselves wait for the next run. After `GIVE_UP_AFTER` of them in a row
no further row is begun.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

Advice = Literal["together", "alone", "quarantine", "stop"]
MAX_LONE_DEATHS = 2
GIVE_UP_AFTER = 20
# What `Ledger.progress` says beside the counts.
IN_WORK, SINCE = "in work", "seconds since the first row was begun"


class Ledger:
    """Plain bookkeeping; the runner wraps it in a Ray actor so that it outlives the workers."""

    def __init__(self, max_lone_deaths: int = MAX_LONE_DEATHS, give_up_after: float = GIVE_UP_AFTER) -> None:
        self._max, self._give_up_after = max_lone_deaths, give_up_after
        self._waiting: dict[str, str] = {}  # rows that the next run tries again, with the reason
        self._in_a_row = 0  # of these, without a row between them that came through
        self._open: set[str] = set()  # begun in a batch and not ended
        self._suspects: set[str] = set()  # were in a batch whose worker died
        self._lone_open: set[str] = set()
        self._lone_deaths: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._first_begin: float | None = None
        self._last_end = 0.0

    def begin(self, ids: Sequence[str]) -> Advice:
        """A worker is about to work on ``ids`` together; says whether it should."""
        if self._first_begin is None:
            self._first_begin = time.monotonic()
        if self.gave_up():
            return "stop"
        if any(i in self._open or i in self._suspects for i in ids):
            self._suspects.update(ids)
            return "alone"
        self._open.update(ids)
        return "together"

    def begin_alone(self, row_id: str) -> Advice:
        """A worker is about to work on one row of a suspect batch."""
        if self.gave_up():
            return "stop"
        if row_id in self._lone_open:
            self._lone_deaths[row_id] += 1
        if self._lone_deaths[row_id] >= self._max:
            self._lone_open.discard(row_id)
            return "quarantine"
        self._lone_open.add(row_id)
        return "alone"

    def end_alone(self, row_id: str) -> None:
        """The row is done, with a result or with a fault of its own."""
        self._lone_open.discard(row_id)
        self._waiting.pop(row_id, None)
        self._in_a_row = 0

    def postpone(self, row_id: str, reason: str) -> None:
        """A row failed for a ``reason`` outside itself."""
        self._lone_open.discard(row_id)
        self._waiting[row_id] = reason
        self._in_a_row += 1

    def end(self, ids: Sequence[str], counts: Mapping[str, float], failed: int = 0) -> None:
        """The rows are done, each with a result or, for ``failed`` of them, a recorded failure."""
        self._open.difference_update(ids)
        self._suspects.difference_update(ids)
        came = [row_id for row_id in ids if row_id not in self._waiting]
        if came:
            self._in_a_row = 0
        self._counts.update({"rows": len(came), **counts})
        self._last_end = time.monotonic()

    def waiting(self) -> dict[str, str]:
        """The rows that wait for the next run, with the reason."""
        return dict(self._waiting)

    def gave_up(self) -> bool:
        """Whether so many rows in a row failed that no further one is begun."""
        return self._in_a_row >= self._give_up_after

    def counts(self) -> dict[str, float]:
        """Totals of this run: rows, and whatever the workers count (tokens, answers...)."""
        return dict(self._counts)

    def progress(self) -> dict[str, float]:
        """`counts`, the rows that were begun and have not ended, and the seconds since the first of all."""
        begun = 0.0 if self._first_begin is None else time.monotonic() - self._first_begin
        return {**self.counts(), IN_WORK: len(self._open | self._lone_open), SINCE: begun}

    def working_seconds(self) -> float:
        """From the first batch to the last result: without the time that engines take to start."""
        return max(0.0, self._last_end - self._first_begin) if self._first_begin is not None else 0.0
