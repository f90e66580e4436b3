"""What a day leaves beside the table: its counts, its sketch and the verdict on it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from sgpu.errors import HeldError
from sgpu.fitted.pinned_model import MODELS
from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.runtime.progress import Progress
from sgpu.scoring.job import JobResult
from sgpu.scoring.labels import LabelSnapshot, days_of, labels_of, news, sketch_with, state_of
from sgpu.scoring.models.pinning import model_folder
from sgpu.scoring.outcome import OnSummary
from sgpu.scoring.plan import DayPlan, day_lock, scoring_folder
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.tables import QUARANTINE
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened
from sgpu.visible import without_credentials
from sgpu.watch.comparisons import PastWindows
from sgpu.watch.history import FORMAT, PastDays, read_past_days, read_summary, summary_place
from sgpu.watch.metrics import TEXTFILE, day_metrics, log_to_mlflow, metrics_text, write_newest
from sgpu.watch.sketch import Sketch, folded
from sgpu.watch.thresholds import Thresholds, read_thresholds
from sgpu.watch.verdict import Verdict, judge_day


def seconds_since(started: datetime) -> float:
    """Of this run, on the clock."""
    return round((datetime.now(UTC) - started).total_seconds(), 3)


def summarise_day(
    plan: DayPlan, result: JobResult, models: Path, started: datetime, labels: LabelSnapshot
) -> dict[str, Any]:
    """Assess the day and write its files; the summary last, since it says that all is done.

    ``models`` is the folder of this machine that holds the files of models.
    """
    times = {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds_since(started),
    }
    thresholds = read_thresholds(plan.settings.thresholds)
    profile = _profile(plan, models)
    state, trail = state_of(plan.out, plan.day, labels), _trail(plan.out, plan.day, thresholds)
    if state.requests:
        result = replace(result, sketch=sketch_with(plan.out, plan.day, labels, trail.sketches))
    result = replace(result, sketch=folded(result.sketch, trail.sketches))
    verdict = _judged(plan.day, trail, result.sketch, result.accounting, profile, thresholds)
    summary = {
        **_content(plan, result, verdict),
        **times,
        "labels": asdict(state),
        "thresholds": thresholds.model_dump(mode="json"),
        "training": None if profile is None else {"histogram": profile.histogram.tolist()},
        "quarantine": collect_examples(plan.out / QUARANTINE.name / file.path for file in result.quarantine),
    }
    _write(plan.out, summary, result.sketch, result.accounting, verdict, time.time())
    return summary


def judge_again(
    plan: DayPlan, summary: Mapping[str, Any], models: Path, labels: LabelSnapshot | None = None
) -> dict[str, Any]:
    """The summary of a day that is scored, with the verdict of thresholds, history and labels as now.

    It is to be tracked again. Nothing is scored and no log read: the profile comes from the files of the
    model, which `sgpu.scoring.models.pinning` has put beneath ``models``. Raises DataError where they are
    gone.
    """
    changed = {**summary, "settings": {**summary["settings"], "thresholds": plan.settings.thresholds}}
    thresholds = read_thresholds(plan.settings.thresholds)
    return _judged_anew(plan.out, changed, _profile(plan, models), thresholds, labels)


def _profile(plan: DayPlan, models: Path) -> TrainingProfile | None:
    """What the champion was trained on; None where it does not say so."""
    return _profile_in(model_folder(plan.out, plan.models.champion, models))


def _profile_in(folder: Path) -> TrainingProfile | None:
    from sgpu.fitted.model import (
        FittedModel,  # with torch, which a night that finds nothing new does not need
    )

    return FittedModel.load(folder, allow_encoder_path=True).profile


def label_again(
    out: Location, summary: Mapping[str, Any], models: Path, labels: LabelSnapshot
) -> dict[str, Any]:
    """As `judge_again`, for a day that the run does not look at: with the thresholds that it had.

    Without the files of its model what they say of the training is not compared.
    """
    folder = models / MODELS / summary["scorer"]["sha256"]
    profile = _profile_in(folder) if folder.is_dir() else None
    return _judged_anew(out, summary, profile, Thresholds.model_validate(summary["thresholds"]), labels)


def _judged_anew(
    out: Location,
    summary: Mapping[str, Any],
    profile: TrainingProfile | None,
    thresholds: Thresholds,
    labels: LabelSnapshot | None,
) -> dict[str, Any]:
    day, changed = date.fromisoformat(summary["date"]), dict(summary)
    trail = _trail(out, day, thresholds)
    if labels is not None and (state := news(out, summary, labels)):
        made = sketch_with(out, day, labels, trail.sketches)
        changed |= {"sketch": made.to_json(), "labels": asdict(state)}
    sketch, accounting = Sketch.from_json(changed["sketch"]), Accounting.from_json(summary["accounting"])
    verdict = _judged(day, trail, sketch, accounting, profile, thresholds)
    again = {
        **changed,
        "verdict": verdict.to_json(),
        "thresholds": thresholds.model_dump(mode="json"),
        "tracked": False,
    }
    finished = datetime.fromisoformat(summary["finished"]).timestamp()
    _write(out, again, sketch, accounting, verdict, finished)
    return again


def track(settings: ScoreSettings, summary: Mapping[str, Any]) -> str | None:
    """Log the day to MLflow, unless that was done; a warning if it could not be."""
    if summary["tracked"]:
        return None
    out, day = Location.of(settings.out), date.fromisoformat(summary["date"])
    metrics = day_metrics(
        Sketch.from_json(summary["sketch"]),
        Accounting.from_json(summary["accounting"]),
        Verdict.from_json(summary["verdict"]),
        summary["seconds"],
    )
    tags = {"run_key": summary["run_key"], "scorer": summary["scorer"]["label"]}
    warning = log_to_mlflow(settings.tracking, summary["date"], str(out), metrics, tags)
    if warning is None:
        summary_place(out, day).write_json({**summary, "tracked": True})
    return warning


def _trail(out: Location, day: date, thresholds: Thresholds) -> PastDays:
    """As far back as any test looks: a pool of days, and as many days before it as a day is compared with."""
    return read_past_days(out, day, thresholds.days + thresholds.pool_days - 1)


def _judged(
    day: date,
    trail: PastDays,
    sketch: Sketch,
    accounting: Accounting,
    profile: TrainingProfile | None,
    thresholds: Thresholds,
) -> Verdict:
    one_day = timedelta(days=1)
    past = trail.between(day - thresholds.days * one_day, day - one_day)
    pooled = day - (thresholds.pool_days - 1) * one_day  # the first day of the pool
    pool = PastWindows(
        trail.between(pooled, day - one_day).sketches,
        trail.between(pooled - thresholds.days * one_day, pooled - one_day).sketches,
    )
    return judge_day(sketch, past.sketches, profile, accounting, thresholds, past.accountings, pool)


def _write(
    out: Location,
    summary: Mapping[str, Any],
    sketch: Sketch,
    accounting: Accounting,
    verdict: Verdict,
    finished: float,
) -> None:
    day = date.fromisoformat(summary["date"])
    file = summary_place(out, day)
    file.parent.make_folder()
    text = metrics_text(
        sketch,
        accounting,
        verdict,
        finished=finished,
        day=datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp(),
        seconds=summary["seconds"],
    )
    (file.parent / TEXTFILE).write_bytes(text)
    write_newest(out, text)
    file.write_json(summary)


def _content(plan: DayPlan, result: JobResult, verdict: Verdict) -> dict[str, Any]:
    named = {
        role: None if model is None else {"label": model.label, "uri": model.uri, "sha256": model.sha256}
        for role, model in (("scorer", plan.models.champion), ("challenger", plan.models.challenger))
    }
    snapshot = plan.snapshot
    return {
        "format": FORMAT,
        "date": plan.day.isoformat(),
        "run_key": plan.key,
        **named,
        "snapshot": {"files": len(snapshot.files), "bytes": snapshot.n_bytes, "sha256": snapshot.sha256},
        "formats": dict(result.accounting.by_format),
        "accounting": result.accounting.to_json(),
        "sketch": result.sketch.to_json(),
        "verdict": verdict.to_json(),
        "scoring_seconds": round(result.scoring_seconds, 3),
        "code_version": plan.code_version,
        "settings": _shown(plan.settings),
        "tracked": False,
    }


def _shown(settings: ScoreSettings) -> dict[str, Any]:
    """The settings for a page that many read."""
    tracking = settings.tracking
    return {
        **settings.model_dump(mode="json"),
        "tracking": None if tracking is None else without_credentials(tracking),
    }


# Up to which label all days were judged.
REACHED = "verdicts.json"


def reach_other_days(settings: ScoreSettings, progress: Progress, on_summary: OnSummary) -> None:
    """Judge every day again of whose requests something was said since this was last done.

    Where another run is at such a day, the next run does it.
    """
    out = Location.of(settings.out)
    labels, file = labels_of(out), out / REACHED
    before = (file.read_json() or {"until": 0})["until"]
    if labels.until == before:
        return
    days, nowhere = days_of(out, labels, before)
    held = []
    for day in days:
        try:
            _reach(settings, day, labels, progress, on_summary)
        except HeldError:
            held.append(day)
    if nowhere:
        progress.say(f"labels: {nowhere} new ones are of no request in the table; they count when it comes")
    try:
        _tell_nowhere(settings, nowhere, on_summary)
    except HeldError:
        held.append(settings.date)
    if held:
        left = ", ".join(str(day) for day in dict.fromkeys(held))
        progress.say(f"labels: another run is at {left}; the next run judges with those that have come")
        return
    file.write_json({"until": labels.until, "nowhere": nowhere})


def _reach(
    settings: ScoreSettings, day: date, labels: LabelSnapshot, progress: Progress, on_summary: OnSummary
) -> None:
    """Raises HeldError where another run is at the day, as `_tell_nowhere` does."""
    out = Location.of(settings.out)
    with day_lock(settings, day):
        summary = read_summary(out, day)
        if summary is None:
            return
        if news(out, summary, labels):
            summary = label_again(out, summary, scoring_folder(settings), labels)
            level = summary["verdict"]["level"]
            progress.say(f"{day}: judged again, with the labels that have come since: {level}")
        # Without news, too: a run may have been killed when it had judged the day.
        if warning := track(settings, summary):
            progress.say(f"warning: {warning}")
        on_summary(out, day)


def _tell_nowhere(settings: ScoreSettings, nowhere: int, on_summary: OnSummary) -> None:
    out, day = Location.of(settings.out), settings.date
    with day_lock(settings, day):
        if (summary := read_summary(out, day)) is not None:
            state = {**summary.get("labels", {}), "nowhere": nowhere}
            summary_place(out, day).write_json({**summary, "labels": state})
            on_summary(out, day)


SHOWN = 5
COLUMNS = ["reason", "file", "line", "detail"]


def collect_examples(files: Iterable[Location], shown: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
    """Return by reason the first ``shown`` rows by file and line, of Parquet files read in pieces.

    A fault of a whole file stands before its lines.
    """
    first = pl.DataFrame()
    for file in files:
        with opened(file) as parquet:
            for batch in parquet.iter_batches(columns=COLUMNS):
                rows = pl.concat([first, pl.DataFrame(batch)], how="diagonal").sort(
                    "file", "line", maintain_order=True
                )
                first = rows.group_by("reason", maintain_order=True).head(shown)
    by_reason = first.partition_by("reason", as_dict=True) if first.height else {}
    return {str(reason): rows.select(COLUMNS[1:]).to_dicts() for (reason,), rows in sorted(by_reason.items())}
