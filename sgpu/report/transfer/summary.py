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
from sgpu.report.study.record import recorded_once, table_versions
from sgpu.report.transfer.grids import TransferData
from sgpu.report.transfer.page import build_transfer_report
from sgpu.stages.run import as_settings
from sgpu.stages.transfer import published_forecasts
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.location import Location
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

FRAMES = {
    "metrics": METRIC_FILE, "comparisons": COMPARISON_FILE, "curve": POINT_FILE, "calibration": POINT_FILE,
}  # fmt: skip
FILES = (*(f"{name}.csv" for name in FRAMES), "run.json")


def summarise_transfer(run: TransferRun) -> Location:
    """Measure the published forecasts, write the report, record the study; returns the page."""
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
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in FRAMES}
    for cell, target in run.cells.items():
        own = [forecast for forecast in forecasts if forecast.plan.target == cell]
        main, drawn = [f for f in own if f.plan.axis is None], [f for f in own if f.plan.axis]
        metrics, comparisons = measured(target, main, n_resamples=study.bootstrap, seed=study.seed)
        rows["metrics"] += metrics
        rows["comparisons"] += comparisons
        rows["curve"] += curve(target, drawn, n_resamples=study.bootstrap, seed=study.seed)
        rows["calibration"] += _recalibrated(run, target, main)
        run.progress.say(f"measure  {cell!s:<46} {len(main)} classifiers")
    return TransferData(
        study=masked(as_settings(study)),
        run_info={**environment(), "finished": utc_now(), "out": str(run.root), "seed": study.seed},
        designs=list(study.designs),
        sources=[_source(source) for source in run.cells.values()],
        **{name: _frame(rows[name], schema) for name, schema in FRAMES.items()},
        fits=[forecast for forecast in forecasts if forecast.plan.axis is None],
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


def _source(source: SourceCell) -> tuple[str, str, Counter[str], float | None]:
    label = source.rows.label[~np.isnan(source.rows.label)]
    rate = float(label.mean()) if len(label) else None
    return str(source.cell), source.modality, Counter(source.split.tolist()), rate


def _notes(run: TransferRun, gaps: Sequence[Gap]) -> list[str]:
    notes = [
        "No row of what a design leaves out reached training, standardisation, inducing points, selection or "
        "calibration of its classifiers: a guard looked at the keys of the rows of each fit, and at what the "
        "fit was made from, and would have failed the run.",
        "A model or data set is known by its name in the runs: the same one under two names counts as two.",
        "Kernel, representation and inducing points are chosen by log loss on validation questions of source "
        "cells that the fit has not seen; one source alone chooses all but the representation on its own.",
        f"All classifiers use spectra of {run.n} answers a question.",
    ]
    more = [str(done.cell) for done in run.finished if done.inputs.n > run.n]
    if more:
        notes.append(
            f"{', '.join(more)} {'has' if len(more) == 1 else 'have'} more answers a question. Training-free "
            "methods use all of them there, as their runs have published."
        )
    for what, names in (("encoders", {done.inputs.encoder for done in run.finished}),
                        ("judges", {done.inputs.judge for done in run.finished})):  # fmt: skip
        if len(names) > 1:
            notes.append(f"The cells have different {what}: {', '.join(sorted(names))}.")
    notes.append(
        "Training-free scores become probabilities by a linear map over validation questions of the target "
        "(min and max, no labels), so their ECE is not zero-shot."
    )
    notes += [note for source in run.cells.values() for note in source.notes]
    if gaps:
        notes.append(f"{len(gaps)} targets could not be tried in some design; see the end of the page.")
    return [*notes, *run.notes]


def _track(run: TransferRun, data: TransferData, page: Path) -> None:
    """Keep the study and its targets in MLflow, unless the same results are there."""
    params = masked(run.study.model_dump(mode="json", exclude={"fitters", "tracking", "runs"}))
    params["cells"] = [str(cell) for cell in run.cells]
    versions = [done.versions for done in run.finished]
    with recorded_once(run, page, FILES, params, code_version(), cells=versions) as parent:
        if parent is None:
            return
        for done in run.finished:
            # The five numbers that a person looks for; the study's metrics.csv has all.
            own = data.metrics.filter(
                pl.col("method").is_in(run.study.designs[:5]),
                model=done.cell.model, dataset=done.cell.dataset, metric="auroc",
            )  # fmt: skip
            parent.log_cell(
                done.cell.model, done.cell.dataset, settings={"n": run.n, "designs": list(run.study.designs)},
                metrics=own["metric", "method", "value"].rows(named=True),
                inputs=table_versions(done.run.store, done.inputs.tables),
            )  # fmt: skip
