"""Labels that come when their day is over: every day that they belong to is judged again."""

from __future__ import annotations

from datetime import date

from sgpu.errors import HeldError
from sgpu.runtime.progress import Progress
from sgpu.scoring.day_lock import day_lock, working_folder
from sgpu.scoring.labelled import days_of, news
from sgpu.scoring.labels import Labels, labels_of
from sgpu.scoring.outcome import OnSummary
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.summary import label_again, read_summary, track
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location
from sgpu.watch.history import summary_place

# Up to which label all days were judged.
REACHED = "verdicts.json"


def reach_other_days(settings: ScoreSettings, told: Progress, on_summary: OnSummary) -> None:
    """Judge every day again of whose requests something was said since this was last done.

    Where another run is at such a day, the next run does it.
    """
    out = Location.of(settings.out)
    labels, place = labels_of(out), out / REACHED
    before = (read_json(place) or {"until": 0})["until"]
    if labels.until == before:
        return
    days, nowhere = days_of(out, labels, before)
    held = []
    for day in days:
        try:
            _reach(settings, day, labels, told, on_summary)
        except HeldError:
            held.append(day)
    if nowhere:
        told.say(f"labels: {nowhere} new ones are of no request in the table; they count when it comes")
    try:
        _tell_nowhere(settings, nowhere, on_summary)
    except HeldError:
        held.append(settings.date)
    if held:
        left = ", ".join(str(day) for day in dict.fromkeys(held))
        told.say(f"labels: another run is at {left}; the next run judges with those that have come")
        return
    write_json(place, {"until": labels.until, "nowhere": nowhere})


def _reach(settings: ScoreSettings, day: date, labels: Labels, told: Progress, on_summary: OnSummary) -> None:
    """Raises HeldError where another run is at the day, as `_tell_nowhere` does."""
    out = Location.of(settings.out)
    with day_lock(settings, day):
        summary = read_summary(out, day)
        if summary is None:
            return
        if news(out, summary, labels):
            summary = label_again(out, summary, working_folder(settings), labels)
            level = summary["verdict"]["level"]
            told.say(f"{day}: judged again, with the labels that have come since: {level}")
        # Without news, too: a run may have been killed when it had judged the day.
        if warning := track(settings, summary):
            told.say(f"warning: {warning}")
        on_summary(out, day)


def _tell_nowhere(settings: ScoreSettings, nowhere: int, on_summary: OnSummary) -> None:
    out, day = Location.of(settings.out), settings.date
    with day_lock(settings, day):
        if (summary := read_summary(out, day)) is not None:
            state = {**summary.get("labels", {}), "nowhere": nowhere}
            write_json(summary_place(out, day), {**summary, "labels": state})
            on_summary(out, day)
