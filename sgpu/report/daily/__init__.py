"""The page of one day of scores, made from the summaries that the runs leave beside the table."""

from __future__ import annotations

from datetime import date

from sgpu.storage.location import Location
from sgpu.watch.history import summary_place

PAGE = "index.html"


def update_daily_page(out: Location, day: date) -> None:
    """`sgpu.report.daily.page.write_daily_page`, unless there is one that is younger than the day's summary.

    A run that is killed between the two leaves an older page, or none. Object storage counts whole seconds.
    """
    summary = summary_place(out, day)
    page = summary.parent / PAGE
    if not page.is_file() or page.info().mtime_ns <= summary.info().mtime_ns:
        from sgpu.report.daily.page import write_daily_page  # with Matplotlib, which takes a second

        write_daily_page(out, day)
