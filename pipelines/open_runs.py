"""The runs that a process works on, each with the lock of its place.

The command line takes the lock itself and registers its run. Dagster has no such moment: a step may have a
process of its own, and steps of one run, of two runs or of a backfill may want the same place at once. So a
step that opens a place takes its lock, waiting for whoever has it, and gives it back when Dagster lets go of
the resource: at the end of the step, or of the run where all steps share a process. Steps of one place thus
take turns, as the command line makes them do anyway, and a command that comes between two of them goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

import dagster as dg

from sgpu.runtime.lock import run_lock
from sgpu.storage.location import Location

R = TypeVar("R")


class OpenRuns(Generic[R]):
    """One run for each place, so that all assets of a process report to the same one."""

    def __init__(self) -> None:
        self._runs: dict[str, R] = {}
        self._locks: dict[str, ExitStack] = {}

    def register(self, place: Location, run: R) -> None:
        """Let assets use a run of which the caller holds the lock."""
        self._runs[str(place)] = run

    def open(self, place: Location, make: Callable[[], tuple[R, Path]]) -> R:
        """The run of a place; at first use it is made, with its local folder, and its lock waited for."""
        if str(place) not in self._runs:
            run, working = make()
            held = ExitStack()
            held.enter_context(run_lock(place, working, wait=dg.get_dagster_logger().warning))
            self._locks[str(place)], self._runs[str(place)] = held, run
        return self._runs[str(place)]

    def close(self, place: Location) -> None:
        """Give back a lock that `open` has taken, and forget its run."""
        if held := self._locks.pop(str(place), None):
            del self._runs[str(place)]
            held.close()
