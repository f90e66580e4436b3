"""The days before: read from what their runs have left beside the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from sgpu.errors import DataError, readable
from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import Verdict

DAYS, SUMMARY = "days", "summary.json"
FORMAT = 1  # of a summary


@dataclass(frozen=True)
class PastDay:
    """What is kept of a day that was scored; ``verdict`` None where it was not judged."""

    day: date
    sketch: Sketch
    accounting: Accounting
    verdict: Verdict | None

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> PastDay:
        """From a day's summary; DataError if it cannot be read."""
        with readable("the summary of a day", "score the day again"):
            verdict = summary.get("verdict")
            return cls(
                date.fromisoformat(summary["date"]),
                Sketch.from_json(summary["sketch"]),
                Accounting.from_json(summary["accounting"]),
                None if verdict is None else Verdict.from_json(verdict),
            )


@dataclass(frozen=True)
class PastDays:
    """The past days that there are, oldest first; days without a run are simply not there.

    ``unreadable`` names the summaries that were left out, with the reason, for the log and the page.
    """

    days: tuple[PastDay, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def sketches(self) -> list[Sketch]:
        return [past.sketch for past in self.days]

    @property
    def accountings(self) -> list[Accounting]:
        return [past.accounting for past in self.days]

    def between(self, first: date, last: date) -> PastDays:
        """Of its days those from ``first`` to ``last``."""
        return replace(self, days=tuple(past for past in self.days if first <= past.day <= last))


def summary_place(out: Location, day: date) -> Location:
    """Where a day's summary stands."""
    return out / DAYS / day.isoformat() / SUMMARY


def read_summary(out: Location, day: date) -> dict[str, Any] | None:
    """Return what a day's run has left; None if there is nothing.

    Raises DataError for what is not a summary, or has another format.
    """
    place = summary_place(out, day)
    with readable(str(place), f"score {day} again"):
        summary: dict[str, Any] | None = place.read_json()
        number = FORMAT if summary is None else summary["format"]
    if number != FORMAT:
        raise DataError(
            f"{place} has format {number!r}, this version reads {FORMAT}; use the version that wrote it"
        )
    return summary


def read_past_days(out: Location, day: date, days: int = 28) -> PastDays:
    """The ``days`` days before ``day`` that have a summary beneath ``out``.

    One that cannot be read is left out and named: a broken page of the past must not stop tonight's run.
    Raises StageError where object storage does not answer.
    """
    days_read, unreadable = [], []
    for past in (day - timedelta(days=back) for back in range(days, 0, -1)):
        try:
            if (summary := read_summary(out, past)) is None:
                continue
            read = PastDay.of(summary)
            if read.day != past:
                raise DataError(f"the summary is of {read.day}")
            days_read.append(read)
        except (DataError, ValueError, RecursionError) as error:
            unreadable.append(f"{past.isoformat()}: {type(error).__name__} {ascii(str(error))[:160]}")
    return PastDays(tuple(days_read), tuple(unreadable))
