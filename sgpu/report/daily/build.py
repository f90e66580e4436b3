"""Write the page of a day from the summaries beneath an output folder."""

from __future__ import annotations

import json
from datetime import date

from sgpu.errors import DataError
from sgpu.report.daily.facts import window
from sgpu.report.daily.page import daily_page
from sgpu.storage.location import Location
from sgpu.watch.history import Trail, read_trail, summary_place

PAGE = "index.html"


def update_daily_page(out: Location, day: date) -> None:
    """`write_daily_page`, unless there is one that is younger than the day's summary.

    A run that is killed between the two leaves an older page, or none. Object storage counts whole seconds.
    """
    summary = summary_place(out, day)
    page = summary.parent / PAGE
    if not page.is_file() or page.info().mtime_ns <= summary.info().mtime_ns:
        write_daily_page(out, day)


def write_daily_page(out: Location, day: date, trail: Trail | None = None) -> Location:
    """Write ``days/<day>/index.html`` beside the day's summary, whole or not at all; return its place.

    ``trail``: the days before, as far back as the verdict looked, read here if it is not given. The same
    summaries give the same bytes. Raises DataError where the day has no summary, or none that can be read.
    """
    place = summary_place(out, day)
    try:
        summary = json.loads(place.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{place} does not exist; score {day} first") from None
    except ValueError as error:
        raise DataError(f"{place} is no JSON ({error}); score {day} again") from error
    html = daily_page(summary, read_trail(out, day, window(summary)) if trail is None else trail)
    page = place.parent / PAGE
    page.write_bytes(html.encode("utf-8", "backslashreplace"))
    return page
