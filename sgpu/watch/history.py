"""The days before: read from what their runs have left beside the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from sgpu.errors import DataError
from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import Verdict

DAYS, SUMMARY = "days", "summary.json"


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
        try:
            verdict = summary.get("verdict")
            return cls(
                date.fromisoformat(summary["date"]),
                Sketch.from_json(summary["sketch"]),
                Accounting.from_json(summary["accounting"]),
                None if verdict is None else Verdict.from_json(verdict),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the summary of a day cannot be read ({error}); score the day again") from error


@dataclass(frozen=True)
class Trail:
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

    def between(self, first: date, last: date) -> Trail:
        """Of its days those from ``first`` to ``last``."""
        return replace(self, days=tuple(past for past in self.days if first <= past.day <= last))


def summary_place(out: Location, day: date) -> Location:
    """Where a day's summary stands."""
    return out / DAYS / day.isoformat() / SUMMARY


def read_trail(out: Location, day: date, days: int = 28) -> Trail:
    """The ``days`` days before ``day`` that have a summary beneath ``out``.

    One that cannot be read is left out and named: a broken page of the past must not stop tonight's run.
    Raises StageError where object storage does not answer.
    """
    before = (day - timedelta(days=back) for back in range(days, 0, -1))
    return trail_of((summary_place(out, past), past) for past in before)


def trail_of(places: Iterable[tuple[Location, date]]) -> Trail:
    """The trail of these summaries; places where nothing stands are gaps."""
    found, unreadable = [], []
    for place, day in places:
        try:
            past = PastDay.of(json.loads(place.read_bytes()))
            if past.day != day:
                raise DataError(f"the summary is of {past.day}")
            found.append(past)
        except FileNotFoundError:
            continue
        except (DataError, ValueError, RecursionError) as error:
            unreadable.append(f"{day.isoformat()}: {type(error).__name__} {ascii(str(error))[:160]}")
    return Trail(tuple(found), tuple(unreadable))
