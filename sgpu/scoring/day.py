"""`sgpu score`: each day of a run brought to exactly where its logs and its model put it, oldest first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

from sgpu.errors import DataError, InterruptedRunError, SgpuError, StageError, UsageError
from sgpu.logs.accounting import Accounting
from sgpu.logs.formats import FormatReader
from sgpu.logs.snapshot import take_snapshot
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import one_ray_session
from sgpu.scoring.asking_again import journal
from sgpu.scoring.crew import SCORER, Crew, open_crew
from sgpu.scoring.day_lock import day_lock, no_lock, working_folder
from sgpu.scoring.failure import explained
from sgpu.scoring.job import DayJob
from sgpu.scoring.labelled import news
from sgpu.scoring.labels import Labels, labels_of, take_in
from sgpu.scoring.late_labels import reach_other_days
from sgpu.scoring.outcome import Came, DayResult, OnSummary, no_page, show
from sgpu.scoring.pins import Pin, pinned
from sgpu.scoring.plan import Plan
from sgpu.scoring.publish import DayTables
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.summary import (
    Times,
    is_judged_by,
    judge_again,
    read_summary,
    summarise,
    track,
)
from sgpu.storage.location import Location, only_ours
from sgpu.watch import read_thresholds
from sgpu.watch.history import summary_place


def score(
    settings: ScoreSettings,
    progress: Progress | None = None,
    scorer: str = SCORER,
    on_summary: OnSummary = no_page,
) -> list[DayResult]:
    """Score all days of the settings; see `sgpu.scoring.outcome.exit_code` for what comes of them.

    ``scorer`` names what opens the models; ``on_summary`` is called for each day as soon as its summary is
    as it has to be, whatever comes of the days after it. Raises DataError if there are no logs of any day,
    StageError where a day could not be finished, after the days that follow it; what is finished is kept, and
    the same call goes on from there.
    """
    told = progress or Progress()
    # Told before any work.
    _check_writable(Location.of(settings.out))
    if settings.private:
        only_ours(Location.of(settings.out))
        Location.of(settings.out).make_private()
    read_thresholds(settings.thresholds)
    FormatReader(settings.format)
    _labels(settings, told)
    results: list[DayResult] = []
    failures: dict[date, SgpuError] = {}
    try:
        with one_ray_session(settings.address), _crew(settings, scorer) as crew:
            for day in settings.days():
                try:
                    results.append(score_day(settings, day, told, crew, on_summary))
                except UsageError:
                    raise
                except Exception as error:
                    # What is wrong with the logs of one day is no reason to leave out the days after it.
                    failures[day] = explained(error, Location.of(settings.out), f"scoring {day}")
                    told.say(f"{day} failed: {failures[day]}")
                    results.append(DayResult(day, "failed"))
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted. What is finished is kept: the same command goes on from there."
        ) from None
    show(results, settings.date, told.console)
    if failures:
        raise _of_days(failures)
    reach_other_days(settings, told, on_summary)
    target = results[-1] if settings.start is None else None
    if (target and target.came == "no logs") or all(one.came == "no logs" for one in results):
        raise DataError(
            f"{settings.logs} holds no logs of {settings.date}. Look for files in folders dt=YYYY-MM-DD or "
            "date=YYYY-MM-DD, or name another --date."
        )
    return results


def _check_writable(out: Location) -> None:
    """Raise StageError if a local output cannot be written; object storage says so itself."""
    if not out.is_local:
        return
    there = next(place for place in (out.local, *out.local.parents) if place.exists())
    if not there.is_dir() or not os.access(
        there, os.W_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        raise StageError(
            f"cannot write to {out}: {there} is read-only, of another user, or no folder. Look at its "
            "mount and permissions, or choose another --out."
        )


def _labels(settings: ScoreSettings, told: Progress) -> Labels:
    """The labels of the output, with those of the file that the settings name."""
    out = Location.of(settings.out)
    taken = None if settings.labels is None else take_in(out, settings.labels)
    if taken is not None:
        told.say(
            f"labels: {taken.read} read, {taken.new} new, {taken.conflicts} against an earlier one; the last "
            "counts"
        )
    return labels_of(out)


def _of_days(failures: Mapping[date, SgpuError]) -> SgpuError:
    """One error for all days that failed; of the kind that is tried again if one of them is."""
    errors = list(failures.values())
    kind = next((type(one) for one in errors if isinstance(one, StageError)), type(errors[0]))
    return kind("\n".join(f"{day} was not scored: {error}" for day, error in failures.items()))


def score_day(
    settings: ScoreSettings,
    day: date,
    progress: Progress | None = None,
    crew: Crew | None = None,
    on_summary: OnSummary = no_page,
    *,
    lock: bool = True,
) -> DayResult:
    """Score one day; nothing is done, and no worker started, if nothing has changed since it was.

    Without ``lock`` two runs at once do some work twice; the table comes out the same.
    """
    if crew is None:
        with _crew(settings, SCORER) as own:
            return score_day(settings, day, progress, own, on_summary, lock=lock)
    told = progress or Progress()
    started = datetime.now(UTC)
    snapshot = take_snapshot(Location.of(settings.logs), day)
    if not snapshot.files:
        return DayResult(day, "no logs", seconds=Times.since(started).seconds)
    # Rows of the logs, models, what was asked again and the cache of vectors lie there.
    Location.of(working_folder(settings)).make_private()
    labels = _labels(settings, told)
    pin = pinned(settings, day, snapshot, working_folder(settings))
    one = _OneDay(Plan(day, settings, pin.models, snapshot), pin, told, started, labels, on_summary)
    if (done := one.unchanged()) is not None:
        return done
    with day_lock(settings, day) if lock else no_lock() as still_ours:
        return one.unchanged() or one.judged_again() or one.finished(crew, still_ours)


class _OneDay:
    """A plan on its way to the table."""

    def __init__(
        self,
        plan: Plan,
        pin: Pin,
        told: Progress,
        started: datetime,
        labels: Labels,
        on_summary: OnSummary,
    ) -> None:
        self._plan, self._pin, self._told, self._started = plan, pin, told, started
        self._labels, self._on_summary = labels, on_summary
        self._tables = DayTables(plan.out, plan.day)

    def unchanged(self) -> DayResult | None:
        """The result if the day was last written by this plan, and all that follows was done too."""
        summary = self._scored()
        if summary is None or not is_judged_by(summary, read_thresholds(self._plan.settings.thresholds)):
            return None
        if news(self._plan.out, summary, self._labels):
            return None
        self._clean()
        return self._result("unchanged", summary)

    def judged_again(self) -> DayResult | None:
        """The result if only thresholds or labels are others: the verdict alone is made again."""
        summary = self._scored()
        if summary is None:
            return None
        self._clean()
        working = working_folder(self._plan.settings)
        return self._result("unchanged", judge_again(self._plan, summary, working, self._labels))

    def _scored(self) -> dict[str, Any] | None:
        """The summary of the day, if this plan has scored it and its tables are whole."""
        summary = read_summary(self._plan.out, self._plan.day)
        if summary is None or summary["run_key"] != self._plan.key:
            return None
        generation = self._tables.written_by(self._plan.key)
        return summary if generation is not None and self._tables.quarantine_of(generation) else None

    def finished(self, crew: Crew, still_ours: Callable[[], None]) -> DayResult:
        plan = self._plan
        if self._pin.kept:
            self._told.say(f"{plan.day}: going on with {plan.models.champion.label}, as the unfinished run")
        self._pin.keep()
        try:
            result = DayJob(plan, crew, self._told, still_ours).run()
            times = Times.since(self._started)
            summary = None if result is None else summarise(plan, result, crew, times, self._labels)
        except Exception as error:
            # A run without our lock may have finished the same work, and removed what it was made of.
            if (done := self.unchanged()) is not None:
                return done
            told = explained(error, plan.out, f"scoring {plan.day}")
            if not isinstance(told, StageError) and self._tables.written_by(plan.key) is None:
                # What is wrong is not mended by going on: the next run asks again which models are meant.
                self._pin.forget()
            raise told from error
        self._clean()
        if summary is None:
            return DayResult(plan.day, "no logs", seconds=Times.since(self._started).seconds)
        return self._result("committed", summary)

    def _clean(self) -> None:
        """Only after the commit: until then it is what makes a retry cheap."""
        self._plan.work.delete()
        journal(self._plan).delete()
        self._pin.forget()

    def _result(self, came: Came, summary: dict[str, Any]) -> DayResult:
        settings = self._plan.settings
        warning = track(settings, summary)
        if warning is not None:
            self._told.say(f"warning: {warning}")
        self._on_summary(self._plan.out, self._plan.day)
        accounting = Accounting.from_json(summary["accounting"])
        return DayResult(
            self._plan.day,
            came,
            self._plan.key,
            accounting,
            summary["verdict"]["level"],
            accounting.bad_share > settings.max_bad,
            Times.since(self._started).seconds,
            summary["scoring_seconds"] if came == "committed" else 0.0,
            summary_place(self._plan.out, self._plan.day).parent,
            () if warning is None else (warning,),
        )


@contextmanager
def _crew(settings: ScoreSettings, scorer: str) -> Iterator[Crew]:
    crew = open_crew(settings, str(working_folder(settings)), scorer)
    try:
        yield crew
    finally:
        crew.close()
