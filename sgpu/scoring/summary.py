"""What a day leaves beside the table: its counts, its sketch and the verdict on it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from sgpu.addresses import without_credentials
from sgpu.errors import DataError
from sgpu.fitted.model import FittedModel
from sgpu.fitted.pinned_model import MODELS
from sgpu.fitted.profile import TrainingProfile
from sgpu.logs.accounting import Accounting
from sgpu.scoring.crew import Crew
from sgpu.scoring.examples import examples
from sgpu.scoring.job import Result
from sgpu.scoring.labelled import news, sketch_with, state_of
from sgpu.scoring.labels import Labels
from sgpu.scoring.plan import Plan
from sgpu.scoring.settings import ScoreSettings
from sgpu.scoring.staging import table_folder
from sgpu.scoring.tables import QUARANTINE
from sgpu.scoring.work_files import read_json, write_json
from sgpu.storage.location import Location
from sgpu.watch import Sketch, Thresholds, Verdict, folded, judge_day, read_thresholds
from sgpu.watch.history import Trail, read_trail, summary_place
from sgpu.watch.metrics import day_metrics
from sgpu.watch.mlflow_metrics import log_to_mlflow
from sgpu.watch.prometheus import TEXTFILE, metrics_text, write_newest
from sgpu.watch.reference import Pool


@dataclass(frozen=True)
class Times:
    """``started`` and ``finished``: ISO 8601, UTC; ``seconds``: of this run, on the clock."""

    started: str
    finished: str
    seconds: float

    @classmethod
    def since(cls, started: datetime) -> Times:
        now = datetime.now(UTC)
        return cls(
            started.isoformat(timespec="seconds"),
            now.isoformat(timespec="seconds"),
            round((now - started).total_seconds(), 3),
        )


def read_summary(out: Location, day: date) -> dict[str, Any] | None:
    """None where the day has none."""
    return read_json(summary_place(out, day))


def summarise(plan: Plan, result: Result, crew: Crew, times: Times, labels: Labels) -> dict[str, Any]:
    """Judge the day and write what is told of it; the summary last, since it says that all is done."""
    thresholds = read_thresholds(plan.settings.thresholds)
    [(_, profile)] = crew.each("profile", [(str(plan.work),)])
    state, trail = state_of(plan.out, plan.day, labels), _trail(plan.out, plan.day, thresholds)
    if state.requests:
        result = replace(result, sketch=sketch_with(plan.out, plan.day, labels, trail.sketches))
    result = replace(result, sketch=folded(result.sketch, trail.sketches))
    verdict = _judged(plan.day, trail, result.sketch, result.accounting, profile, thresholds)
    summary = {
        **_content(plan, result, verdict, times),
        "labels": state.to_json(),
        "thresholds": thresholds.model_dump(mode="json"),
        "training": None if profile is None else {"histogram": profile.histogram.tolist()},
        "quarantine": examples(table_folder(plan.out, QUARANTINE) / file.path for file in result.quarantine),
    }
    _write(plan.out, summary, result.sketch, result.accounting, verdict, time.time())
    return summary


def is_judged_by(summary: Mapping[str, Any], thresholds: Thresholds) -> bool:
    """Whether the verdict of a summary was made with these thresholds."""
    return bool(summary.get("thresholds") == thresholds.model_dump(mode="json"))


def judge_again(
    plan: Plan, summary: Mapping[str, Any], models: Path, labels: Labels | None = None
) -> dict[str, Any]:
    """The summary of a day that is scored, with the verdict of thresholds, history and labels as now.

    It is to be tracked again. Nothing is scored and no log read: the profile comes from the files of the
    model, which `sgpu.scoring.pins` has put beneath ``models``. Raises DataError where they are gone.
    """
    champion = plan.models.champion
    folder = models / MODELS / champion.sha256
    if not folder.is_dir():
        raise DataError(f"{folder}: the files of {champion.label} are gone; run the same command again")
    told = {**summary, "settings": {**summary["settings"], "thresholds": plan.settings.thresholds}}
    profile = FittedModel.load(folder, allow_encoder_path=True).profile
    thresholds = read_thresholds(plan.settings.thresholds)
    return _judged_anew(Location.of(plan.settings.out), told, profile, thresholds, labels)


def label_again(out: Location, summary: Mapping[str, Any], models: Path, labels: Labels) -> dict[str, Any]:
    """As `judge_again`, for a day that the run does not look at: with the thresholds that it had.

    Without the files of its model what they say of the training is not compared.
    """
    folder = models / MODELS / summary["scorer"]["sha256"]
    profile = FittedModel.load(folder, allow_encoder_path=True).profile if folder.is_dir() else None
    return _judged_anew(out, summary, profile, Thresholds.model_validate(summary["thresholds"]), labels)


def _judged_anew(
    out: Location,
    summary: Mapping[str, Any],
    profile: TrainingProfile | None,
    thresholds: Thresholds,
    labels: Labels | None,
) -> dict[str, Any]:
    day, changed = date.fromisoformat(summary["date"]), dict(summary)
    trail = _trail(out, day, thresholds)
    if labels is not None and (state := news(out, summary, labels)):
        made = sketch_with(out, day, labels, trail.sketches)
        changed |= {"sketch": made.to_json(), "labels": state.to_json()}
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
        write_json(summary_place(out, day), {**summary, "tracked": True})
    return warning


def _trail(out: Location, day: date, thresholds: Thresholds) -> Trail:
    """As far back as any test looks: a pool of days, and as many days before it as a day is compared with."""
    return read_trail(out, day, thresholds.days + thresholds.pool_days - 1)


def _judged(
    day: date,
    trail: Trail,
    sketch: Sketch,
    accounting: Accounting,
    profile: TrainingProfile | None,
    thresholds: Thresholds,
) -> Verdict:
    one = timedelta(days=1)
    past = trail.between(day - thresholds.days * one, day - one)
    pooled = day - (thresholds.pool_days - 1) * one  # the first day of the pool
    pool = Pool(
        trail.between(pooled, day - one).sketches,
        trail.between(pooled - thresholds.days * one, pooled - one).sketches,
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
    place = summary_place(out, day)
    place.parent.make_folder()
    text = metrics_text(
        sketch,
        accounting,
        verdict,
        finished=finished,
        day=datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp(),
        seconds=summary["seconds"],
    )
    (place.parent / TEXTFILE).write_bytes(text)
    write_newest(out, text)
    write_json(place, summary)


def _content(plan: Plan, result: Result, verdict: Verdict, times: Times) -> dict[str, Any]:
    named = {
        role: None if model is None else {"label": model.label, "uri": model.uri, "sha256": model.sha256}
        for role, model in (("scorer", plan.models.champion), ("challenger", plan.models.challenger))
    }
    snapshot = plan.snapshot
    return {
        "date": plan.day.isoformat(),
        "run_key": plan.key,
        **named,
        "snapshot": {"files": len(snapshot.files), "bytes": snapshot.n_bytes, "sha256": snapshot.sha256},
        "formats": dict(result.accounting.by_format),
        "accounting": result.accounting.to_json(),
        "sketch": result.sketch.to_json(),
        "verdict": verdict.to_json(),
        "started": times.started,
        "finished": times.finished,
        "seconds": times.seconds,
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
