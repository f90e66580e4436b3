"""What came of the days of a run, or stopped it: for a person as a table, for a scheduler as an exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from rich.console import Console
from rich.table import Table as RichTable

from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch.verdict import EXIT_CODES, Level

FAILED, TOO_BAD = 1, 3
# From the least to the worst: some faulty rows say nothing against a change that the other rows show.
SEVERITY = (0, EXIT_CODES["yellow"], TOO_BAD, EXIT_CODES["red"], FAILED)
MEANING = {
    FAILED: "failed",
    EXIT_CODES["red"]: "red",
    TOO_BAD: "too many faulty rows or files",
    EXIT_CODES["yellow"]: "yellow",
}
WIDE = 140
CAPTION = (
    "scoreable: of the requests that carry an answer; other: other days, no answer, questions of batches"
)
DayStatus = Literal["committed", "unchanged", "no logs", "failed"]
# Called with the output and a day whose summary was written, or looked at and left as it is.
OnSummary = Callable[[Location, date], object]


def no_page(out: Location, day: date) -> None:
    """The summaries alone: nobody reads pages of these days."""


@dataclass(frozen=True)
class DayResult:
    """One day. ``unchanged``: it was done already, and nothing was; all that is known of it is still told.

    ``seconds`` are those of this run; ``scoring_seconds`` those of all workers together, while they encoded
    and judged. ``folder`` holds the day's summary and page. ``tests``: how many could be made, and of how
    many.
    """

    day: date
    status: DayStatus
    run_key: str | None = None
    accounting: Accounting | None = None
    level: Level | None = None
    tests: tuple[int, int] = (0, 0)
    too_bad: bool = False
    seconds: float = 0.0
    scoring_seconds: float = 0.0
    folder: Location | None = None
    warnings: tuple[str, ...] = ()

    @property
    def codes(self) -> set[int]:
        """Return all its exit codes: 1 failed, 3 too many faulty rows or files, 4 yellow, 5 red."""
        level = EXIT_CODES.get(self.level, 0) if self.level else 0
        return {FAILED * (self.status == "failed"), TOO_BAD * self.too_bad, level} - {0}

    @property
    def exit_code(self) -> int:
        """The worst of `codes`; 0 if there is none."""
        return max(self.codes, key=SEVERITY.index, default=0)


def exit_code(results: Sequence[DayResult], day: date) -> int:
    """The worst of the days that this run wrote, and of ``day`` in any case: others were told before."""
    return max((result.exit_code for result in _counted(results, day)), key=SEVERITY.index, default=0)


def explain_exit_code(results: Sequence[DayResult], day: date) -> list[str]:
    """Return the reasons for the exit code and those that it hides, the worst first, with their days."""
    counted = _counted(results, day)
    days = {
        code: [str(result.day) for result in counted if code in result.codes] for code in reversed(SEVERITY)
    }
    return [f"{MEANING[code]} ({code}): {', '.join(of)}" for code, of in days.items() if of]


def _counted(results: Sequence[DayResult], day: date) -> list[DayResult]:
    return [result for result in results if result.status in ("committed", "failed") or result.day == day]


def show_outcome(results: Sequence[DayResult], day: date, console: Console) -> None:
    """Print rows of the logs by day and outcome as a table, and why the exit code is not 0."""
    table = RichTable("day", "result", box=None, pad_edge=False, caption=CAPTION, caption_justify="left")
    numbers = ("rows in", "scored", "quarantined", "duplicates", "already", "other", "scoreable", "s")
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for result in results:
        table.add_row(result.day.isoformat(), result.status, *_numbers(result), _verdict(result))
    wide = wide_enough(console)
    wide.print(table)
    if causes := explain_exit_code(results, day):
        wide.print(f"exit code {exit_code(results, day)}: {'; '.join(causes)}", markup=False)


def wide_enough(console: Console) -> Console:
    """A log file has no width, and would cut the columns of a table for 80 characters."""
    return console if console.is_terminal else Console(file=console.file, width=WIDE)


def _numbers(result: DayResult) -> list[str]:
    rows = result.accounting
    if rows is None:
        return [""] * 7 + [f"{result.seconds:.1f}"]
    counts = (
        rows.rows_in, rows.scored_rows, rows.quarantined, rows.duplicates, rows.already,
        rows.other_day + rows.no_answer + rows.prompts,
    )  # fmt: skip
    return [*(f"{n:,}" for n in counts), rows.scoreable, f"{result.seconds:.1f}"]


def _verdict(result: DayResult) -> str:
    made, tests = result.tests
    level = f"{result.level or ''}{f', {made} of {tests} tests' if tests else ''}"
    return f"{level}{', too many faults' if result.too_bad else ''}"
