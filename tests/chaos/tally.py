"""What was tried and what came of it: one line for each fault."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from tests.chaos.outcome import Outcome


@dataclass
class Fault:
    """``times``: how often it was done. ``runs``: of `sgpu score`, until the day was finished."""

    name: str
    times: int = 0
    runs: int = 0
    rows_in: int = 0
    lost: int = 0
    doubled: int = 0
    identical: bool = True
    seconds: float = 0.0
    note: str = ""


class Tally:
    """Faults in the order in which they were first tried."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    @property
    def faults(self) -> list[Fault]:
        return list(self._faults.values())

    def add(
        self, name: str, outcome: Outcome, *, seconds: float, times: int = 1, runs: int = 1, note: str = ""
    ) -> None:
        """Count one trial, whatever came of it."""
        fault = self._faults.setdefault(name, Fault(name, note=note))
        fault.times += times
        fault.runs += runs
        fault.rows_in += outcome.rows_in
        fault.lost += outcome.lost
        fault.doubled += outcome.doubled
        fault.identical &= outcome.identical
        fault.seconds = round(fault.seconds + seconds, 1)

    def write(self, path: Path, instants: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"cores": os.cpu_count(), "machine": platform.machine(), "instants": instants}
        content = {**about, "faults": [asdict(fault) for fault in self.faults]}
        path.write_text(json.dumps(content, indent=1) + "\n")


def as_table(faults: Sequence[Fault]) -> Table:
    table = Table("fault", box=None, pad_edge=False)
    for name in ("times", "runs", "rows in", "lost", "doubled", "identical", "s"):
        table.add_column(name, justify="right")
    for one in faults:
        counts = (one.times, one.runs, one.rows_in, one.lost, one.doubled)
        table.add_row(one.name, *(f"{n:,}" for n in counts), _yes(one.identical), f"{one.seconds:.0f}")
    return table


def as_text(faults: Sequence[Fault]) -> str:
    """The same as a table of Markdown, for documents."""
    head = "| fault | times | runs | rows in | lost | doubled | identical | seconds |\n|---|" + "---:|" * 7
    lines = [
        f"| {one.name} | {one.times} | {one.runs} | {one.rows_in:,} | {one.lost} | {one.doubled} | "
        f"{_yes(one.identical)} | {one.seconds:.0f} |"
        for one in faults
    ]
    return "\n".join([head, *lines]) + "\n"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
