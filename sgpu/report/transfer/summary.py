"""The second half of a transfer study: metrics, tests, curves, recalibration, the report and MLflow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from sgpu.provenance import code_version, environment, utc_now
from sgpu.report.study.record import RECORDED, is_recorded, table_versions
from sgpu.report.transfer.grids import TransferCellRow, TransferData
from sgpu.report.transfer.page import build_transfer_report
from sgpu.runtime.run import as_settings
from sgpu.stages.transfer import TransferRun, published_forecasts
from sgpu.storage.location import Location
from sgpu.storage.store import fingerprint
from sgpu.tracking import store_address
from sgpu.transfer.designs import Gap
from sgpu.transfer.measure import (
    COMPARISON_FILE,
    METRIC_FILE,
    POINT_FILE,
    Forecast,
    curve,
    measured,
    recalibration,
)
from sgpu.transfer.rows import SourceCell
from sgpu.visible import masked

FILES = ("metrics.csv", "comparisons.csv", "curve.csv", "calibration.csv", "run.json")


def summarise_transfer(run: TransferRun) -> Location:
    """Measure what `transfer` has published, write the report, record the study; returns the page."""
    data = collect_transfer(run)
    page = build_transfer_report(run.out, data)
    facts = {"transfer_study": data.study, "run": data.run_info}
    (run.out / "run.json").write_text(json.dumps(facts, indent=1, default=str))
    _track(run, data, page)
    if not run.root.is_local:
        for name in (*FILES, "metrics.parquet"):
            (run.root / name).write_bytes((run.out / name).read_bytes())
        (run.root / "report").upload(run.out / "report", last=page.name)
    return run.root / "report" / page.name


def collect_transfer(run: TransferRun) -> TransferData:
    """Everything that the report shows."""
    forecasts, gaps = published_forecasts(run)
    study = run.study
    metrics: list[dict[str, object]] = []
    comparisons: list[dict[str, object]] = []
    points: list[dict[str, object]] = []
    calibrated: list[dict[str, object]] = []
    for cell, target in run.cells.items():
        own = [one for one in forecasts if one.plan.target == cell]
        main, drawn = [f for f in own if f.axis is None], [f for f in own if f.axis is not None]
        found = measured(target, main, n_resamples=study.bootstrap, seed=study.seed)
        metrics += found[0]
        comparisons += found[1]
        points += curve(target, drawn, n_resamples=study.bootstrap, seed=study.seed)
        calibrated += _recalibrated(run, target, main)
        run.progress.say(f"measure  {cell!s:<46} {len(main)} classifiers")
    return TransferData(
        study=masked(as_settings(study)),
        run_info={**environment(), "finished": utc_now(), "out": str(run.root), "seed": study.seed},
        designs=list(study.designs),
        sources=[_source(known) for known in run.cells.values()],
        metrics=_frame(metrics, METRIC_FILE),
        comparisons=_frame(comparisons, COMPARISON_FILE),
        curve=_frame(points, POINT_FILE),
        calibration=_frame(calibrated, POINT_FILE),
        fits=[forecast for forecast in forecasts if forecast.axis is None],
        gaps=gaps,
        notes=_notes(run, gaps),
    )


def _recalibrated(run: TransferRun, target: SourceCell, main: Sequence[Forecast]) -> list[dict[str, object]]:
    spec = run.study.calibration
    if spec is None:
        return []
    return [
        row
        for forecast in main
        if forecast.plan.design == spec.design
        for name in spec.maps
        for row in recalibration(
            target, forecast, name=name, labels=spec.labels, seeds=spec.seeds,
            n_resamples=run.study.bootstrap, seed=run.study.seed,
        )
    ]  # fmt: skip


def _frame(rows: Sequence[dict[str, object]], schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.Table.from_pylist(list(rows), schema=schema)))


def _source(known: SourceCell) -> TransferCellRow:
    label = known.rows.label[~np.isnan(known.rows.label)]
    counts = Counter(known.split.tolist())
    return TransferCellRow(
        cell=str(known.cell),
        modality=known.modality,
        n_train=counts["train"],
        n_validation=counts["validation"],
        n_test=counts["test"],
        label_rate=float(label.mean()) if len(label) else None,
    )


def _notes(run: TransferRun, gaps: Sequence[Gap]) -> list[str]:
    notes = [
        "No row of what a design leaves out reached training, standardisation, inducing points, selection or "
        "calibration of its classifiers: a guard looked at the keys of the rows of each fit and would have "
        "failed the run.",
        "A model or data set is known by its name in the runs: the same one under two names counts as two.",
        "Kernel, representation and inducing points are chosen by log loss on validation questions of source "
        "cells that the fit has not seen; one source alone chooses all but the representation on its own.",
        f"All classifiers use spectra of {run.n} answers a question.",
    ]
    more = [str(one.cell) for one in run.finished if one.inputs.n > run.n]
    if more:
        notes.append(
            f"{', '.join(more)} {'has' if len(more) == 1 else 'have'} more answers a question. Training-free "
            "methods use all of them there, as their runs have published."
        )
    for what, names in (("encoders", {one.inputs.encoder for one in run.finished}),
                        ("judges", {one.inputs.judge for one in run.finished})):  # fmt: skip
        if len(names) > 1:
            notes.append(f"The cells have different {what}: {', '.join(sorted(names))}.")
    notes.append(
        "Training-free scores become probabilities by a linear map over validation questions of the target "
        "(min and max, no labels), so their ECE is not zero-shot."
    )
    notes += [note for known in run.cells.values() for note in known.notes]
    if gaps:
        notes.append(f"{len(gaps)} targets could not be tried in some design; see the end of the page.")
    return [*notes, *run.notes]


def _track(run: TransferRun, data: TransferData, page: Path) -> None:
    """Keep the study and its targets in MLflow, unless the same results are there."""
    params = masked(run.study.model_dump(mode="json", exclude={"fitters", "tracking", "runs"}))
    params["cells"] = [str(cell) for cell in run.cells]
    versions = [one.versions for one in run.finished]
    store = store_address(run.study.tracking.mlflow)
    key = fingerprint({"params": params, "cells": versions, "store": masked(store)})
    recorded = run.out / RECORDED
    if is_recorded(recorded, key):
        return
    tracker = run.tracker
    if tracker is None:
        recorded.write_text(key)
        return
    with tracker.study(run.study.name, params, {"code_version": code_version()}) as parent:
        for one in run.finished:
            # The five numbers that a person looks for; the study's metrics.csv has all.
            own = data.metrics.filter(
                pl.col("method").is_in(run.study.designs[:5]),
                model=one.cell.model, dataset=one.cell.dataset, metric="auroc",
            )  # fmt: skip
            parent.log_cell(
                one.cell.model, one.cell.dataset, settings={"n": run.n, "designs": list(run.study.designs)},
                metrics=own["metric", "method", "value"].rows(named=True),
                inputs=table_versions(one.run.store, one.inputs.tables),
            )  # fmt: skip
        parent.log_report(page.parent)
        for name in FILES:
            parent.log_artifact(run.out / name)
    recorded.write_text(key)
