"""Metrics stage: every metric of every method on the test questions of a cell, and how methods differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.evaluation.cell import EvaluationSettings, evaluate_cell
from sgpu.evaluation.comparison import compare_cell
from sgpu.evaluation.delong import few_rows_caution
from sgpu.provenance import code_version
from sgpu.runtime.run import Run, as_settings
from sgpu.runtime.stage import Outcome
from sgpu.stages.cell_frame import CellInputs, aligned, cell_inputs, floats, rows_of
from sgpu.stages.entail import entailment_record
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import COMPARISONS, METRICS
from sgpu.study.benchmark import Cell

VERSION = 3


def measure(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's metrics and comparisons."""
    partition = cell.partition()
    predictions = run.store.require("predictions", partition)
    content = {
        "stage": "measure",
        "stage_version": VERSION,
        "inputs": [[predictions.table, predictions.partition.path, predictions.fingerprint]],
        "settings": as_settings(run.study.evaluation),
        "seed": run.study.seed,
    }
    key = fingerprint(content)
    current = run.store.unchanged(METRICS.name, partition, key)
    if current and run.store.unchanged(COMPARISONS.name, partition, key):
        outcome = Outcome("measure", current, reused=True)
    else:
        began = time.perf_counter()
        manifest = {**content, "code_version": code_version()}
        metrics, comparisons = _measured(run, cell, predictions)
        run.store.write(COMPARISONS, partition, comparisons, key, manifest)
        published = run.store.write(METRICS, partition, metrics, key, manifest)
        outcome = Outcome("measure", published, reused=False, seconds=time.perf_counter() - began)
    run.remember(outcome)
    rows = outcome.published.read(["metric", "value", "n"]).to_pylist()
    counts = [(round(r["value"] * r["n"]), r["n"]) for r in rows if r["metric"] == "accuracy" and r["n"]]
    if caution := next((text for k, n in counts if (text := few_rows_caution(k, n - k))), ""):
        run.progress.say(f"  {cell}: {caution}")
    return outcome


def provenance(run: Run, cell: Cell, inputs: CellInputs) -> dict[str, object]:
    """What every result row says of where it comes from, beside its model, data set and method."""
    # Of answers that were sampled elsewhere the settings are those of the import.
    sampled = {} if run.is_given(cell) else inputs.responses.manifest.get("settings", {})
    return {
        "revision": inputs.questions.manifest.get("revision"),
        "engine": sampled.get("engine", "given"),
        "model_revision": sampled.get("model", {}).get("revision"),
        "images": sampled.get("images"),
        "embed": inputs.embed,
        "judge": inputs.judge,
        "encoder": inputs.encoder,
        **entailment_record(run, cell),
        "n_answers": inputs.n,
        "seed": run.study.seed,
        "code_version": code_version(),
        "tables": {table: version for table, _, version in inputs.versions},
    }


def evaluation_settings(
    run: Run, record: Mapping[str, object], methods: Mapping[str, Mapping[str, object]] | None = None
) -> EvaluationSettings:
    """How the study draws its intervals, with what its rows record."""
    return EvaluationSettings(
        n_resamples=run.study.evaluation.bootstrap, seed=run.study.seed, record=record, methods=methods or {}
    )


def _measured(run: Run, cell: Cell, predictions: Published) -> tuple[pa.Table, pa.Table]:
    """Metrics and comparisons of a cell's predictions."""
    made_with = predictions.manifest.get("settings", {})
    settings = evaluation_settings(run, provenance(run, cell, cell_inputs(run, cell)), made_with)
    said = columns_of(rows_of(predictions))
    if not said.confidence:
        return METRICS.schema.empty_table(), COMPARISONS.schema.empty_table()
    arrays = (said.confidence, said.probability, said.label, said.split)
    metrics = evaluate_cell(*arrays, unsafe=said.unsafe, settings=settings)
    comparisons = compare_cell(*arrays, reference=run.study.primary_method, settings=settings)
    return (
        pa.Table.from_pylist([asdict(row) for row in metrics], schema=METRICS.schema),
        pa.Table.from_pylist([asdict(row) for row in comparisons], schema=COMPARISONS.schema),
    )


@dataclass(frozen=True)
class Columns:
    """What the methods say of the same Q questions; None where a method does not say it."""

    question_ids: list[str]
    confidence: dict[str, NDArray[np.float64]]
    probability: Mapping[str, NDArray[np.float64] | None]
    unsafe: Mapping[str, NDArray[np.float64] | None]
    label: NDArray[np.float64]
    split: NDArray[Any]


def columns_of(frame: pl.DataFrame) -> Columns:
    """One row a question, one column a method: methods are compared on the same rows."""
    ids = frame.select("question_id", "split", "label").unique(maintain_order=True)
    said = frame.drop("split", "label").partition_by("method", as_dict=True, include_key=False)
    by_method = {name: aligned(ids["question_id"], rows) for (name,), rows in said.items() if name}

    def columns(name: str) -> dict[str, NDArray[np.float64]]:
        return {method: floats(rows[name]) for method, rows in by_method.items()}

    def where_any(name: str) -> dict[str, NDArray[np.float64] | None]:
        return {method: None if np.isnan(v).all() else v for method, v in columns(name).items()}

    return Columns(
        ids["question_id"].to_list(),
        columns("confidence"),
        where_any("probability"),
        where_any("unsafe"),
        floats(ids["label"]),
        ids["split"].to_numpy(),
    )
