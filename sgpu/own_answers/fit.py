"""The fitting workflow: one's own labelled response sets in; a model, its measures and a version out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sgpu.errors import StageError
from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_answers, evaluate_cell
from sgpu.fitted.model import FittedModel
from sgpu.fitted.result import Result
from sgpu.fitted.risk_control import ControlledCut, probability_cut, rows_needed
from sgpu.gp.persistence import write_json
from sgpu.own_answers.request import FitRequest
from sgpu.scoring.models.registered_models import promote_model
from sgpu.stages.evaluate import caution_of
from sgpu.stages.fit_rows import PLUS
from sgpu.stages.labelled_sets import read_labelled
from sgpu.stages.own_model import OwnModel
from sgpu.storage.bundle_files import MEASURES, free_place, publish_bundle
from sgpu.storage.location import Location
from sgpu.tracking import open_tracker, store_address
from sgpu.tracking.base import RegisteredFit
from sgpu.watch.thresholds import Thresholds

if TYPE_CHECKING:
    from sgpu.tracking.runs import MlflowTracker


@dataclass(frozen=True)
class FitOutcome:
    """The folder that was written, the registered version if there is one, and the rule if one holds."""

    folder: Location
    metrics: list[MetricRow]
    cut: ControlledCut | None
    version: RegisteredFit | None


def fit_responses(
    responses: Path | str, out: Path | str, request: FitRequest | None = None, console: Console | None = None
) -> FitOutcome:
    """Fit a model to a file of labelled response sets, and write it to ``out``.

    `sgpu.datasets.responses` says what the file holds. ``out`` (a folder or s3://) then holds the model and
    metrics.json; a model that was there is replaced as a whole, and a place that holds anything else is
    refused. The same file and request write the same bytes on one machine. Measures are of held-out rows;
    those that choose the cut are neither trained nor tested on, and one of each group. Raises UsageError
    before any work for a request that cannot be met, DataError for rows that cannot be fitted and for a
    model that is written and registered but below the floor of a champion, StageError for a store that fails.
    """
    request, console = request or FitRequest(), console or Console(highlight=False)
    location = free_place(Location.of(out))
    # Before the work: a store that is down is known now, not after it.
    tracker = None if request.register is None else open_tracker(store_address(request.tracking_uri))
    sets = read_labelled(
        Path(responses),
        n=request.n,
        seed=request.settings.seed,
        test_share=request.test_share,
        calibration_share=request.share_for_threshold,
        judge=request.judge,
    )
    fitted = OwnModel(sets, request.settings)
    tested, _ = fitted.predict("test")
    metrics = _measure(fitted, tested, request)
    cut = _cut(fitted, request)
    model = fitted.with_profile(None if cut is None else cut.rule)
    facts = _facts(fitted, tested, metrics, cut, request) | _read_by(fitted, tested)
    with TemporaryDirectory(prefix="sgpu-fit-") as folder:
        bundle = Path(folder, "model")
        model.save(bundle)
        write_json(bundle / MEASURES, facts)
        publish_bundle(bundle, location)
        show_fit(console, facts, [*fitted.notes, *sets.faults, *profile_notes(model)])
        version = None if tracker is None else _registered(tracker, bundle, model, facts, request, location)
    if version is not None:
        show_version(console, version, request.alias, promoted=request.promote)
    if version is not None and request.promote:
        before = promote_model(version.name, version.version, request.tracking_uri, force=request.force)
        was = "" if before in (None, version.version) else f" (was version {before})"
        console.print(f"version {version.version} is now champion{was}", markup=False, soft_wrap=True)
    return FitOutcome(location, metrics, cut, version)


def _measure(fitted: OwnModel, tested: Result, request: FitRequest) -> list[MetricRow]:
    """Return the metrics of the held-out rows, also of the chosen answers if their votes are known."""
    method, (_, label) = fitted.method, fitted.sets.part("test")
    probability, split = {method: tested.probability}, np.full(len(label), "test")
    settings = EvaluationSettings(n_resamples=request.resamples, seed=request.settings.seed)
    metrics = evaluate_cell(
        probability,
        probability,
        label.astype(np.float64),
        split,
        unsafe={method: tested.unsafe.astype(np.float64)},
        settings=settings,
    )
    known = np.flatnonzero(~np.isnan(tested.p_answer))
    votes = fitted.sets.votes_of("test")
    chosen, first = np.full((2, len(known)), np.nan)
    for place, row in enumerate(known):
        if vote := votes[row]:
            chosen[place], first[place] = np.array([vote[tested.chosen[row]], vote[0]], dtype=np.float64)
    if np.isnan(chosen).all():
        return metrics
    return metrics + evaluate_answers(method, tested.p_answer[known], chosen, first, split[known], settings)


def _read_by(fitted: OwnModel, tested: Result) -> dict[str, Any]:
    """Return how many held-out rows were read by agreement, and why the others were not."""
    if fitted.method != PLUS:
        return {}
    why = Counter(reason for reason in tested.declined if reason)
    return {"read_by": {"agreement": tested.by.count("agreement"), "spectrum": dict(sorted(why.items()))}}


def _cut(fitted: OwnModel, request: FitRequest) -> ControlledCut | None:
    if request.target_error is None:
        return None
    prediction, label = fitted.predict("validation")
    rows = fitted.sets.independent("validation", request.settings.seed)
    return probability_cut(prediction.probability[rows], label[rows], request.target_error, request.delta)


def _facts(
    fitted: OwnModel,
    tested: Result,
    metrics: Sequence[MetricRow],
    cut: ControlledCut | None,
    request: FitRequest,
) -> dict[str, Any]:
    """What stands in metrics.json: nothing of it depends on the time or the place."""
    sets, (_, label) = fitted.sets, fitted.sets.part("test")
    rule: dict[str, Any] | None = None
    if request.target_error is not None:
        rule = {"target_error": request.target_error, "confidence": request.confidence, "cut": None}
        rule["n_calibration"] = len(sets.independent("validation", request.settings.seed))
    if rule is not None and cut is not None:
        accepted = cut.rule.accepts(tested.probability)
        rule |= {"cut": cut.rule.cut, "upper": cut.upper, "test_accepted": int(accepted.sum())}
        rule |= {"test_accepted_wrong": int((label[accepted] == 0).sum())}
    return {
        "format": 1,
        "n_answers": sets.n,
        "answers": {str(count): rows for count, rows in sets.counts.items()},
        "judge": sets.judge,
        "rows": {side: int((sets.split == side).sum()) for side in ("train", "validation", "test")},
        "left_out": sets.left_out,
        "metrics": [asdict(row) for row in metrics],
        "rule": rule,
    }


def _registered(
    tracker: MlflowTracker,
    bundle: Path,
    model: FittedModel,
    facts: Mapping[str, Any],
    request: FitRequest,
    location: Location,
) -> RegisteredFit:
    name, spectrum = str(request.register), model.require_spectrum()
    settings = {
        **model.provenance["classifier"],
        "method": model.provenance["method"],
        "encoder": spectrum.encoder,
        "encoder_dtype": spectrum.encoder_dtype,
        "rows": facts["rows"],
        "judge": facts["judge"],
        "source_sha256": model.provenance["source_sha256"],
        "seed": request.settings.seed,
    }
    try:
        with tracker.study(f"fit {name}", settings) as study:
            source = str(model.provenance["source"])
            run = study.log_cell(
                name, source, settings=settings, metrics=facts["metrics"], artifacts=[bundle / MEASURES]
            )
            metadata = {"source": source, "code_version": model.provenance["code_version"]}
            return tracker.register_fit(
                bundle, name, n_answers=facts["n_answers"], alias=request.alias, metadata=metadata, run_id=run
            )
    except StageError as error:
        raise StageError(f"the model is in {location}, but it is not registered: {error}") from error


SHOWN = {
    "auroc": "AUROC",
    "ece": "ECE",
    "brier": "Brier score",
    "accuracy": "share that is right",
    "accuracy_answer": "chosen answers that are right",
    "accuracy_first_answer": "first answers that are right",
    "auroc_answer": "AUROC of chosen answers",
}


def show_fit(console: Console, facts: Mapping[str, Any], notes: Sequence[str]) -> None:
    """A short table of what stands in metrics.json."""
    rows = facts["rows"]
    table = Table(f"held out: {rows['test']} rows", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for row in facts["metrics"]:
        if row["metric"] in SHOWN:
            interval = "" if row["lo"] is None else f"{row['lo']:.3f} to {row['hi']:.3f}"
            value = "not defined" if row["value"] is None else f"{row['value']:.3f}"
            table.add_row(SHOWN[row["metric"]], value, interval)
    console.print(table)
    left_out = ", ".join(f"{count} {why}" for why, count in facts["left_out"].items() if count)
    used = (
        f"{rows['train']} rows trained on, {rows['validation']} kept for the threshold; "
        f"sets of {', '.join(facts['answers'])} answers; left out: {left_out or 'none'}"
    )
    caution = caution_of(facts["metrics"])
    cautions = [f"held out: {caution}"] if caution else []
    for line in [used, *cautions, *notes, *_describe(facts), *_rule(facts)]:
        console.print(line, markup=False, soft_wrap=True)


def _describe(facts: Mapping[str, Any]) -> list[str]:
    """Return a line on how many held-out rows were read by agreement on content."""
    if "read_by" not in facts:
        return []
    by, rows = facts["read_by"], facts["rows"]["test"]
    others = "".join(f"; {count} by their spectrum: {why}" for why, count in by["spectrum"].items())
    share = f"{by['agreement']} of {rows} held-out rows ({by['agreement'] / max(rows, 1):.0%})"
    return [f"{share} were read by agreement on content{others}"]


def profile_notes(model: FittedModel) -> list[str]:
    """Return a note on what the watch of `sgpu score` cannot compare days with, for lack of rows."""
    profile, least, least_mean = model.profile, Thresholds().min_rows, Thresholds().min_mean_rows
    if profile is None:
        return []
    sides = {"training": len(profile.shares), "held-out": profile.held_out_rows}
    short = " and ".join(f"{rows} {side} rows" for side, rows in sides.items() if rows < least)
    compared = "compares days with the training by their mean probability only"
    if profile.held_out_rows < least_mean:
        compared = f"cannot compare probabilities with the training, for which {least_mean} are needed"
    note = (
        f"the model's profile holds {short} (one of each `group`, if any): `sgpu score` {compared}; "
        f"all tests need {least} rows of each"
    )
    return [note] if short else []


def show_version(console: Console, version: RegisteredFit, alias: str, promoted: bool) -> None:
    """Which version the model has become, and how to make it the champion unless that is done."""
    note = "" if version.created else " (the same files were registered before)"
    remedy = "" if promoted else f" Champion: sgpu model promote {version.name} {version.version}"
    text = f"registered as {version.name} version {version.version}{note}, alias {alias}.{remedy}"
    console.print(text, markup=False, soft_wrap=True)


def _percent(share: float) -> str:
    """Not rounded: 99.5 % is not 100 %, and 0.05 % is not 0.1 %."""
    return f"{round(100 * share, 9):.12g}%"


def _calibration(facts: Mapping[str, Any]) -> str:
    """The rows that the cut was chosen on, and why they are fewer than were set apart."""
    used, kept = facts["rule"]["n_calibration"], facts["rows"]["validation"]
    return f"{used} calibration rows" + (f" (of {kept}: one of each group)" if used < kept else "")


def _rule(facts: Mapping[str, Any]) -> list[str]:
    rule = facts["rule"]
    if rule is None:
        return []
    aim = (
        f"the error rate at or below {_percent(rule['target_error'])} "
        f"with confidence {_percent(rule['confidence'])}"
    )
    if rule["cut"] is None:
        least = rows_needed(rule["target_error"], round(1 - rule["confidence"], 12))
        return [
            f"no threshold keeps {aim} on {_calibration(facts)}. It would have to accept "
            f"{least} or more of them, nearly all of them right. Label more rows, or allow more errors."
        ]
    accepted, wrong = rule["test_accepted"], rule["test_accepted_wrong"]
    return [
        f"accepting answers from probability {rule['cut']:.3f} keeps {aim}, by {_calibration(facts)}; of "
        f"the held-out rows it accepts {accepted}, of which {wrong} are wrong"
    ]
