"""`sgpu score`: each day of a run brought to exactly where its logs and its model put it, oldest first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from sgpu.errors import DataError, HeldError, InterruptedRunError, SgpuError, StageError, UsageError
from sgpu.location import Location
from sgpu.report.daily.build import PAGE, write_daily_page
from sgpu.scoring.accounting import Accounting
from sgpu.scoring.asking_again import journal
from sgpu.scoring.crew import SCORER, Crew, open_crew
from sgpu.scoring.failure import explained
from sgpu.scoring.job import DayJob
from sgpu.scoring.labels import labels_sha256
from sgpu.scoring.logs import FormatReader
from sgpu.scoring.outcome import Came, DayResult, show
from sgpu.scoring.pins import Pin, pinned
from sgpu.scoring.plan import Plan
from sgpu.scoring.publish import DayTables
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.snapshot import take_snapshot
from sgpu.scoring.summary import Times, is_judged_by, judge_again, read_summary, summarise, track
from sgpu.scoring.watch import read_thresholds
from sgpu.scoring.watch.history import summary_place
from sgpu.stages.lock import run_lock
from sgpu.stages.progress import Progress
from sgpu.stages.session import one_ray_session
from sgpu.weights import cache_dir


def score(settings: ScoreSettings, progress: Progress | None = None, scorer: str = SCORER) -> list[DayResult]:
    """Score all days of the settings; see `sgpu.scoring.outcome.exit_code` for what comes of them.

    ``scorer`` names what opens the models. Raises DataError if there are no logs of any day, StageError where
    a day could not be finished, after the days that follow it; what is finished is kept, and the same call
    goes on from there.
    """
    told = progress or Progress()
    # Told before any work.
    read_thresholds(settings.thresholds)
    FormatReader(settings.format)
    _check_writable(Location.of(settings.out))
    results: list[DayResult] = []
    failures: dict[date, SgpuError] = {}
    try:
        with one_ray_session(settings.address), _crew(settings, scorer) as crew:
            for day in settings.days():
                try:
                    results.append(score_day(settings, day, told, crew))
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
    *,
    lock: bool = True,
) -> DayResult:
    """Score one day; nothing is done, and no worker started, if nothing has changed since it was.

    Without ``lock`` two runs at once do some work twice; the table comes out the same.
    """
    if crew is None:
        with _crew(settings, SCORER) as own:
            return score_day(settings, day, progress, own, lock=lock)
    told = progress or Progress()
    started = datetime.now(UTC)
    snapshot = take_snapshot(Location.of(settings.logs), day)
    if not snapshot.files:
        return DayResult(day, "no logs", seconds=Times.since(started).seconds)
    labels = labels_sha256(settings.labels)
    pin = pinned(settings, day, snapshot, labels, _working(settings))
    one = _OneDay(Plan(day, settings, pin.models, snapshot, labels), pin, told, started)
    if (done := one.unchanged()) is not None:
        return done
    with _lock(settings, day) if lock else _no_lock() as still_ours:
        return one.unchanged() or one.judged_again() or one.finished(crew, still_ours)


class _OneDay:
    """A plan on its way to the table."""

    def __init__(self, plan: Plan, pin: Pin, told: Progress, started: datetime) -> None:
        self._plan, self._pin, self._told, self._started = plan, pin, told, started
        self._tables = DayTables(plan.out, plan.day)

    def unchanged(self) -> DayResult | None:
        """The result if the day was last written by this plan, and all that follows was done too."""
        summary = self._scored()
        if summary is None or not is_judged_by(summary, read_thresholds(self._plan.settings.thresholds)):
            return None
        self._clean()
        return self._result("unchanged", summary)

    def judged_again(self) -> DayResult | None:
        """The result if all was done, but judged by other thresholds: only the verdict is made again."""
        summary = self._scored()
        if summary is None:
            return None
        self._clean()
        # A page that is not there is written by the next run, an old one would be kept.
        (summary_place(self._plan.out, self._plan.day).parent / PAGE).delete()
        return self._result("unchanged", judge_again(self._plan, summary, _working(self._plan.settings)))

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
            summary = None if result is None else summarise(plan, result, crew, times)
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
        folder = summary_place(self._plan.out, self._plan.day).parent
        if came == "committed" or not (folder / PAGE).is_file():
            write_daily_page(self._plan.out, self._plan.day)
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
            folder,
            () if warning is None else (warning,),
        )


def _working(settings: ScoreSettings) -> Path:
    """The folder of this machine that goes with the table: models, and the locks of runs on this machine."""
    out = Location.of(settings.out)
    if out.is_local:
        return out.local / "work"
    return cache_dir() / "scoring" / hashlib.sha256(str(out).encode()).hexdigest()[:12]


@contextmanager
def _crew(settings: ScoreSettings, scorer: str) -> Iterator[Crew]:
    crew = open_crew(settings, str(_working(settings)), scorer)
    try:
        yield crew
    finally:
        crew.close()


@contextmanager
def _lock(settings: ScoreSettings, day: date) -> Iterator[Callable[[], None]]:
    folder = _working(settings) / "locks" / day.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    place = Location.of(settings.out) / "work" / "locks" / day.isoformat()
    with ExitStack() as stack:
        try:
            still_ours = stack.enter_context(run_lock(place, folder))
        except HeldError as error:
            raise HeldError(
                f"another run is scoring {day} into {settings.out}. Wait for it and run this again: there is "
                f"then nothing left to do, or only what is new. ({error})"
            ) from None
        yield still_ours


@contextmanager
def _no_lock() -> Iterator[Callable[[], None]]:
    yield lambda: None
