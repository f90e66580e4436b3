"""What came of the days of a run: for a person as a table, for a scheduler as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from rich.console import Console
from rich.table import Table as RichTable

from sgpu.location import Location
from sgpu.scoring.accounting import Accounting
from sgpu.scoring.watch.verdict import EXIT_CODES, Level

TOO_BAD = 3
# From the least to the worst: a day whose logs are broken says little of the model.
SEVERITY = (0, 4, 5, TOO_BAD)
WIDE = 140
Came = Literal["committed", "unchanged", "no logs", "failed"]


@dataclass(frozen=True)
class DayResult:
    """One day. ``unchanged``: it was done already, and nothing was; all that is known of it is still told.

    ``seconds`` are those of this run; ``scoring_seconds`` those of all workers together, while they encoded
    and judged. ``folder`` holds the day's summary and page.
    """

    day: date
    came: Came
    run_key: str | None = None
    accounting: Accounting | None = None
    level: Level | None = None
    too_bad: bool = False
    seconds: float = 0.0
    scoring_seconds: float = 0.0
    folder: Location | None = None
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 green, 3 more faulty rows than allowed, 4 yellow, 5 red."""
        return TOO_BAD if self.too_bad else EXIT_CODES[self.level] if self.level else 0


def exit_code(results: Sequence[DayResult], day: date) -> int:
    """The worst of the days that this run wrote, and of ``day`` in any case: others were told before."""
    told = [one.exit_code for one in results if one.came == "committed" or one.day == day]
    return max(told, key=SEVERITY.index, default=0)


def show(results: Sequence[DayResult], console: Console) -> None:
    """Rows of the logs by day and by what became of them, as a table."""
    table = RichTable("day", "came", box=None, pad_edge=False)
    numbers = ("rows in", "scored", "quarantined", "duplicates", "already", "other", "scoreable", "s")
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for one in results:
        table.add_row(one.day.isoformat(), one.came, *_numbers(one), _verdict(one))
    # A log file has no width, and would cut the columns of a table for 80 characters.
    wide = console if console.is_terminal else Console(file=console.file, width=WIDE)
    wide.print(table)


def _numbers(one: DayResult) -> list[str]:
    known = one.accounting
    if known is None:
        return [""] * 7 + [f"{one.seconds:.1f}"]
    share = known.scoreable_share
    counts = (
        known.rows_in, known.scored_rows, known.quarantined, known.duplicates, known.already,
        known.other_day + known.no_answer + known.prompts,
    )  # fmt: skip
    return [*(f"{n:,}" for n in counts), "" if share is None else f"{share:.1%}", f"{one.seconds:.1f}"]


def _verdict(one: DayResult) -> str:
    return f"{one.level or ''}{', too many faulty rows' if one.too_bad else ''}"
