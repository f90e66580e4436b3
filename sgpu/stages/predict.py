"""Prediction stage: one confidence per method for every validation and test question of a cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sgpu.methods.base import METHODS, Method
from sgpu.provenance import code_version
from sgpu.stages.cell_frame import CellInputs, cell_frame, cell_inputs, eigenvalues, features
from sgpu.stages.fit import fit_of
from sgpu.stages.run import Run
from sgpu.stages.runner import Outcome
from sgpu.store import Partition, Published, fingerprint
from sgpu.study import Cell
from sgpu.tables import PREDICTIONS

VERSION = 1
COLUMNS = [field.name for field in PREDICTIONS.schema]


def predict(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's predictions."""
    inputs = cell_inputs(run, cell)
    partition = Partition.of(model=cell.model, dataset=cell.dataset)
    fit = fit_of(run, cell)
    content = {
        "stage": "predict",
        "stage_version": VERSION,
        "inputs": inputs.versions,
        "methods": sorted(run.study.methods),
        "fit": fit.fit_id if fit else None,
    }
    key = fingerprint(content)
    if current := run.store.unchanged("predictions", partition, key):
        return _remember(run, current, reused=True)
    frame = cell_frame(inputs).filter(pl.col("split").is_in(["validation", "test"]))
    parts, unavailable = [], []
    for name in run.study.methods:
        method = METHODS.get(name)
        made = (
            _training_free(method, frame, inputs)
            if isinstance(method, Method)
            else _fitted(frame, inputs, fit)
        )
        if isinstance(made, str):
            unavailable.append({"cell": str(cell), "method": name, "why": made})
        else:
            parts.append(made.with_columns(pl.lit(name).alias("method")))
    if not parts:
        whys = "; ".join(f"{row['method']}: {row['why']}" for row in unavailable)
        parts = [frame.clear().with_columns(_nulls(), pl.lit("").alias("method"))]
        run.progress.say(f"  no method could score {cell}: {whys}")
    rows = pl.concat(parts).select(COLUMNS).to_arrow().cast(PREDICTIONS.schema)
    manifest = {**content, "unavailable": unavailable, "code_version": code_version()}
    return _remember(run, run.store.write(PREDICTIONS, partition, rows, key, manifest), reused=False)


def _nulls() -> list[pl.Expr]:
    return [
        pl.lit(None, dtype=pl.Float64).alias("confidence"),
        pl.lit(None, dtype=pl.Float64).alias("probability"),
        pl.lit(None, dtype=pl.Float64).alias("sd"),
        pl.lit(None, dtype=pl.Boolean).alias("unsafe"),
        pl.lit(None, dtype=pl.String).alias("fit_id"),
    ]


def _training_free(method: Method, frame: pl.DataFrame, inputs: CellInputs) -> pl.DataFrame | str:
    known = features(frame, inputs, method.needs)
    lacking = known.lacks(method.needs)
    if lacking:
        return inputs.why_lacking(lacking)
    confidence = pl.Series("confidence", method.confidence(known)).fill_nan(None)
    return frame.with_columns(_nulls()).with_columns(confidence)


def _fitted(frame: pl.DataFrame, inputs: CellInputs, fit: Any) -> pl.DataFrame | str:
    if fit is None or fit.problem:
        return fit.problem if fit else "its classifier was not fitted"
    values = eigenvalues(frame, inputs.n)
    known = ~np.isnan(values).any(axis=1)
    result = fit.load().predict(values[known])
    columns = {}
    for name in ("probability", "sd"):
        column = np.full(len(values), np.nan)
        column[known] = getattr(result, name)
        columns[name] = pl.Series(name, column).fill_nan(None)
    unsafe = np.full(len(values), None, dtype=object)
    unsafe[known] = [bool(flag) for flag in result.unsafe]
    return frame.with_columns(
        columns["probability"].alias("confidence"),
        columns["probability"],
        columns["sd"],
        pl.Series("unsafe", unsafe.tolist(), dtype=pl.Boolean),
        pl.lit(fit.fit_id).alias("fit_id"),
    )


def _remember(run: Run, published: Published, reused: bool) -> Outcome:
    outcome = Outcome("predict", published, reused)
    run.remember(outcome)
    return outcome
