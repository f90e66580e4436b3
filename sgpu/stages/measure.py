"""Metrics stage: every metric of every method on the test questions of a cell."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.evaluation.cell import EvaluationSettings, evaluate_cell
from sgpu.provenance import code_version
from sgpu.stages.cell_frame import CellInputs, cell_inputs
from sgpu.stages.entail import entailment_record
from sgpu.stages.run import Run, as_settings
from sgpu.stages.runner import Outcome
from sgpu.store import Partition, Published, fingerprint
from sgpu.study import Cell
from sgpu.tables import METRICS

VERSION = 1


def measure(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's metrics."""
    partition = Partition.of(model=cell.model, dataset=cell.dataset)
    predictions = run.store.require("predictions", partition)
    content = {
        "stage": "measure",
        "stage_version": VERSION,
        "inputs": [[predictions.table, predictions.partition.path, predictions.fingerprint]],
        "settings": as_settings(run.study.evaluation),
        "seed": run.study.seed,
    }
    key = fingerprint(content)
    if current := run.store.unchanged("metrics", partition, key):
        return _remember(run, current, reused=True)
    frame = pl.DataFrame(pl.from_arrow(predictions.read()))
    settings = EvaluationSettings(
        n_resamples=run.study.evaluation.bootstrap,
        seed=run.study.seed,
        record=provenance(run, cell, cell_inputs(run, cell)),
    )
    rows = [asdict(row) for row in _evaluate(frame, settings)]
    table = pa.Table.from_pylist(rows, schema=METRICS.schema)
    published = run.store.write(METRICS, partition, table, key, {**content, "code_version": code_version()})
    return _remember(run, published, reused=False)


def provenance(run: Run, cell: Cell, inputs: CellInputs) -> dict[str, object]:
    """What every result row says of where it comes from, beside its model, data set and method."""
    responses = inputs.responses.manifest
    return {
        "revision": inputs.questions.manifest.get("revision"),
        "engine": (responses.get("settings") or {}).get("engine", "given"),
        "judge": inputs.judge,
        "encoder": inputs.encoder,
        **entailment_record(run, cell),
        "n_answers": inputs.n,
        "seed": run.study.seed,
        "code_version": code_version(),
        "tables": {table: version for table, _, version in inputs.versions},
    }


def _evaluate(frame: pl.DataFrame, settings: EvaluationSettings) -> list[Any]:
    methods = [name for name in frame["method"].unique(maintain_order=True).to_list() if name]
    if not methods:
        return []
    # One row a question, one column a method: methods are compared on the same rows.
    ids = frame.select("question_id", "split", "label").unique(maintain_order=True)

    def column(method: str, name: str) -> NDArray[np.float64]:
        own = frame.filter(pl.col("method") == method).select("question_id", pl.col(name).cast(pl.Float64))
        return (
            ids.join(own, on="question_id", how="left", maintain_order="left")[name]
            .fill_null(np.nan)
            .to_numpy()
        )

    probability = {name: column(name, "probability") for name in methods}
    unsafe = {name: column(name, "unsafe") for name in methods}
    return evaluate_cell(
        {name: column(name, "confidence") for name in methods},
        {name: None if np.isnan(p).all() else p for name, p in probability.items()},
        ids["label"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        ids["split"].to_numpy(),
        unsafe={name: None if np.isnan(flag).all() else flag for name, flag in unsafe.items()},
        settings=settings,
    )


def _remember(run: Run, published: Published, reused: bool) -> Outcome:
    outcome = Outcome("measure", published, reused)
    run.remember(outcome)
    return outcome
