"""`sgpu score`: each day of a run brought to exactly where its logs and its model put it, oldest first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sgpu.errors import DataError, SgpuError, StageError, UsageError, resumable
from sgpu.logs.accounting import Accounting
from sgpu.logs.formats import FormatReader
from sgpu.logs.snapshot import take_snapshot
from sgpu.runtime.explained import to_stage_error
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import one_ray_session
from sgpu.scoring.job import DayJob
from sgpu.scoring.labels import LabelSnapshot, labels_of, news, take_in
from sgpu.scoring.models.pinning import SCORER, Pin, ScorerSource, pinned
from sgpu.scoring.outcome import DayResult, DayStatus, OnSummary, no_page, show_outcome
from sgpu.scoring.plan import DayPlan, day_lock, scoring_folder
from sgpu.scoring.publish import DayTables
from sgpu.scoring.resampling.asking import journal
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.summary import (
    judge_again,
    reach_other_days,
    seconds_since,
    summarise_day,
    track,
)
from sgpu.storage.location import Location, only_ours
from sgpu.watch.history import read_summary, summary_place
from sgpu.watch.thresholds import read_thresholds
from sgpu.watch.verdict import Verdict


def score_days(
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
    progress, out = progress or Progress(), Location.of(settings.out)
    # Told before any work.
    _check_writable(out)
    if settings.private:
        only_ours(out)
        out.make_private()
    read_thresholds(settings.thresholds)
    FormatReader(settings.format)
    _labels(settings, progress)
    results: list[DayResult] = []
    failures: dict[date, SgpuError] = {}
    source = ScorerSource(scoring_folder(settings), scorer)
    with resumable(), one_ray_session(settings.address):
        for day in settings.days():
            try:
                results.append(score_day(settings, day, progress, source, on_summary))
            except UsageError:
                raise
            except Exception as error:
                # What is wrong with the logs of one day is no reason to leave out the days after it.
                failures[day] = to_stage_error(error, out, f"scoring {day}")
                progress.say(f"{day} failed: {failures[day]}")
                results.append(DayResult(day, "failed"))
    show_outcome(results, settings.date, progress.console)
    if failures:
        raise _of_days(failures)
    reach_other_days(settings, progress, on_summary)
    _check_for_logs(settings, results)
    return results


def _check_for_logs(settings: ScoreSettings, results: list[DayResult]) -> None:
    asked_for = results if settings.start else results[-1:]
    if all(result.status == "no logs" for result in asked_for):
        raise DataError(
            f"{settings.logs} holds no logs of {settings.date}. Look for files in folders dt=YYYY-MM-DD or "
            "date=YYYY-MM-DD, or name another --date."
        )


def _check_writable(out: Location) -> None:
    """Raise StageError if a local output cannot be written; object storage says so itself."""
    if not out.is_local:
        return
    existing = next(folder for folder in (out.local, *out.local.parents) if folder.exists())
    if not existing.is_dir() or not os.access(
        existing, os.W_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        raise StageError(
            f"cannot write to {out}: {existing} is read-only, of another user, or no folder. Look at its "
            "mount and permissions, or choose another --out."
        )


def _labels(settings: ScoreSettings, progress: Progress) -> LabelSnapshot:
    """The labels of the output, with those of the file that the settings name."""
    out = Location.of(settings.out)
    taken = None if settings.labels is None else take_in(out, settings.labels)
    if taken is not None:
        progress.say(
            f"labels: {taken.read} read, {taken.new} new, {taken.conflicts} against an earlier one; the last "
            "counts"
        )
    return labels_of(out)


def _of_days(failures: Mapping[date, SgpuError]) -> SgpuError:
    """One error for all days that failed; of the kind that is tried again if one of them is."""
    errors = list(failures.values())
    kind = next((type(error) for error in errors if isinstance(error, StageError)), type(errors[0]))
    return kind("\n".join(f"{day} was not scored: {error}" for day, error in failures.items()))


def score_day(
    settings: ScoreSettings,
    day: date,
    progress: Progress | None = None,
    source: ScorerSource | None = None,
    on_summary: OnSummary = no_page,
    *,
    lock: bool = True,
) -> DayResult:
    """Score one day; nothing is done, and no model opened, if nothing has changed since it was.

    Without ``lock`` two runs at once do some work twice; the table comes out the same.
    """
    progress, started = progress or Progress(), datetime.now(UTC)
    snapshot = take_snapshot(Location.of(settings.logs), day)
    if not snapshot.files:
        return DayResult(day, "no logs", seconds=seconds_since(started))
    folder = scoring_folder(settings)
    source = source or ScorerSource(folder)
    # Rows of the logs, models, what was asked again and the cache of vectors lie there.
    Location.of(folder).make_private()
    labels = _labels(settings, progress)
    pin = pinned(settings, day, snapshot, folder)
    run = _DayRun(DayPlan(day, settings, pin.models, snapshot), pin, progress, started, labels, on_summary)
    if (done := run.unchanged()) is not None:
        return done
    with day_lock(settings, day) if lock else nullcontext():
        return run.unchanged() or run.judged_again() or run.finished(source)


@dataclass
class _DayRun:
    """A plan on its way to the table."""

    _plan: DayPlan
    _pin: Pin
    _progress: Progress
    _started: datetime
    _labels: LabelSnapshot
    _on_summary: OnSummary

    @property
    def _tables(self) -> DayTables:
        return DayTables(self._plan.out, self._plan.day)

    def unchanged(self) -> DayResult | None:
        """The result if the day was last written by this plan, and all that follows was done too."""
        summary, thresholds = self._scored(), read_thresholds(self._plan.settings.thresholds)
        if summary is None or summary.get("thresholds") != thresholds.model_dump(mode="json"):
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
        working = scoring_folder(self._plan.settings)
        return self._result("unchanged", judge_again(self._plan, summary, working, self._labels))

    def _scored(self) -> dict[str, Any] | None:
        """The summary of the day, if this plan has scored it and its tables are whole."""
        summary = read_summary(self._plan.out, self._plan.day)
        if summary is None or summary["run_key"] != self._plan.key:
            return None
        generation = self._tables.written_by(self._plan.key)
        return summary if generation is not None and self._tables.quarantine_of(generation) else None

    def finished(self, source: ScorerSource) -> DayResult:
        plan = self._plan
        if self._pin.kept:
            self._progress.say(f"{plan.day}: resuming the unfinished run with {plan.models.champion.label}")
        self._pin.keep()
        try:
            result = DayJob(plan, source, self._progress).run()
            models = scoring_folder(plan.settings)
            summary = (
                None if result is None else summarise_day(plan, result, models, self._started, self._labels)
            )
        except Exception as error:
            # A run without our lock may have finished the same work, and removed what it was made of.
            if (done := self.unchanged()) is not None:
                return done
            failure = to_stage_error(error, plan.out, f"scoring {plan.day}")
            if not isinstance(failure, StageError) and self._tables.written_by(plan.key) is None:
                # What is wrong is not mended by going on: the next run asks again which models are meant.
                self._pin.forget()
            raise failure from error
        self._clean()
        if summary is None:
            return DayResult(plan.day, "no logs", seconds=seconds_since(self._started))
        return self._result("committed", summary)

    def _clean(self) -> None:
        """Only after the commit: until then it is what makes a retry cheap."""
        for folder in (self._plan.work, Location.of(self._plan.scratch)):
            folder.delete()
        journal(self._plan).delete()
        self._pin.forget()

    def _result(self, status: DayStatus, summary: dict[str, Any]) -> DayResult:
        settings = self._plan.settings
        warning = track(settings, summary)
        if warning is not None:
            self._progress.say(f"warning: {warning}")
        self._on_summary(self._plan.out, self._plan.day)
        accounting = Accounting.from_json(summary["accounting"])
        verdict = Verdict.from_json(summary["verdict"])
        return DayResult(
            self._plan.day,
            status,
            self._plan.key,
            accounting,
            verdict.level,
            verdict.n_tests,
            accounting.bad_share > settings.max_bad or accounting.bad_file_share > settings.max_bad_files,
            seconds_since(self._started),
            summary["scoring_seconds"] if status == "committed" else 0.0,
            summary_place(self._plan.out, self._plan.day).parent,
            () if warning is None else (warning,),
        )
