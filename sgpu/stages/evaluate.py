"""Prediction and metrics stages: what every method says of a cell's held-out questions, and how good that is.

Every validation and test question gets one confidence of each method; the metrics, and how methods differ,
are of the test questions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.agreement import rules_sha256
from sgpu.evaluation.cell import EvaluationSettings, MetricRow, evaluate_answers, evaluate_cell
from sgpu.evaluation.comparison import compare_cell
from sgpu.evaluation.delong import few_rows_caution
from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier, Prediction
from sgpu.gp.content import ContentClassifier
from sgpu.hidden.rows import probe_layers, probe_states
from sgpu.methods.base import METHODS, Method, configured_method
from sgpu.no_answer import list_sha256
from sgpu.probes.base import ProbeMethod
from sgpu.provenance import code_version
from sgpu.runtime.stage import Outcome
from sgpu.stages.cell_frame import (
    CellInputs,
    aligned,
    cell_frame,
    cell_inputs,
    eigenvalues,
    features,
    floats,
    rows_of,
)
from sgpu.stages.entail import entailment_record
from sgpu.stages.fit import BUNDLED, Fit, fit_of, trained_methods
from sgpu.stages.fit_rows import PLUS
from sgpu.stages.run import Run, as_settings
from sgpu.storage.store import Published, fingerprint
from sgpu.storage.tables import COMPARISONS, METRICS, PREDICTIONS
from sgpu.study.benchmark import Cell

PREDICT_VERSION, MEASURE_VERSION = 4, 4
Scored = tuple[pl.DataFrame, Mapping[str, object]]  # predictions, and the settings that they were made with


def predict(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's predictions."""
    inputs = cell_inputs(run, cell)
    partition = cell.partition()
    fits = {name: fit_of(run, cell, name) for name in trained_methods(run)}
    content = _content(run, inputs, fits)
    key = fingerprint(content)
    if current := run.store.unchanged("predictions", partition, key):
        return run.remember(Outcome("predict", current, reused=True))
    began = time.perf_counter()
    frame = cell_frame(inputs).filter(pl.col("split").is_in(["validation", "test"]))
    # The empty table has every column, so that what a method does not say is null.
    parts = [pl.DataFrame(pl.from_arrow(PREDICTIONS.schema.empty_table()))]
    unavailable, settings, seconds = [], {}, {}
    for name in run.study.methods:
        started = time.perf_counter()
        scored = (
            _fitted(run, frame, inputs, name, fits[name]) if name in fits else _free(run, frame, inputs, name)
        )
        if isinstance(scored, str):
            unavailable.append({"cell": str(cell), "method": name, "why": scored})
        else:
            parts.append(scored[0].with_columns(method=pl.lit(name)))
            settings[name] = dict(scored[1])
            seconds[name] = time.perf_counter() - started
    if not settings:
        whys = "; ".join(f"{row['method']}: {row['why']}" for row in unavailable)
        run.progress.say(f"  no method could score {cell}: {whys}")
    manifest = {
        **content,
        "unavailable": unavailable,
        "settings": settings,
        "method_seconds": seconds,  # of each method's own computation, for `questions`
        "questions": frame.height,
        "code_version": code_version(),
    }
    table = _predictions(parts)
    published = run.store.write(PREDICTIONS, partition, table, key, manifest)
    elapsed = time.perf_counter() - began
    return run.remember(Outcome("predict", published, reused=False, seconds=elapsed))


def _content(run: Run, inputs: CellInputs, fits: Mapping[str, Fit | None]) -> dict[str, Any]:
    """Return what the predictions of a cell depend on."""
    return {
        "stage": "predict",
        "stage_version": PREDICT_VERSION,
        "inputs": inputs.versions,
        "methods": sorted(run.study.methods),
        "method_settings": run.study.method_settings,
        "fits": {name: fit.fit_id if fit else None for name, fit in fits.items()},
        "refusals": list_sha256(),
        "agreement": rules_sha256(),
        **METHODS.plugins(*run.study.methods),
    }


def _predictions(parts: Sequence[pl.DataFrame]) -> pa.Table:
    """Join the rows of all methods, without the scores of questions that have no answer."""
    answered = pl.when(pl.col("no_answer").is_null())
    scores = [answered.then(name).alias(name) for name in ("confidence", "probability", "sd", "unsafe")]
    rows = pl.concat(parts, how="diagonal").with_columns(scores)
    return rows.select(PREDICTIONS.schema.names).to_arrow().cast(PREDICTIONS.schema)


def _free(run: Run, frame: pl.DataFrame, inputs: CellInputs, name: str) -> Scored | str:
    """By a method without training; what it has to choose it chooses on validation questions, unlabelled."""
    method = configured_method(name, run.study.method_settings.get(name, {}))
    assert isinstance(method, Method)
    available = features(frame, inputs, method.needs)
    if lacking := available.lacks(method.needs):
        return inputs.why_lacking(lacking)
    validation = frame.filter(pl.col("split") == "validation")
    if method.tune and not validation.is_empty() and not run.study.method_settings.get(name):
        method = method.tune(features(validation, inputs, method.needs))
    return frame.with_columns(confidence=_nullable(method.confidence(available))), method.settings


def _fitted(run: Run, frame: pl.DataFrame, inputs: CellInputs, name: str, fit: Fit | None) -> Scored | str:
    if fit is None or fit.folder is None:
        return (fit.problem if fit else None) or "it was not fitted"
    settings: Mapping[str, object] = {}
    if name in BUNDLED:
        scored = _classified(frame, inputs, fit.folder)
    elif name == PLUS:
        scored = _agreed(frame, inputs, fit.folder)
    else:
        method: ProbeMethod = METHODS.get(name)
        scored, settings = _probed(frame, inputs, method, fit.folder, run.study.probe_position(method))
    return scored.with_columns(fit_id=pl.lit(fit.fit_id)), settings


def _classified(frame: pl.DataFrame, inputs: CellInputs, fit: Path) -> pl.DataFrame:
    values = eigenvalues(frame, inputs.n)
    has_spectrum = np.asarray(~np.isnan(values).any(axis=1))
    return _beside(frame, has_spectrum, GPClassifier.load(fit).predict(values[has_spectrum]))


def _agreed(frame: pl.DataFrame, inputs: CellInputs, fit: Path) -> pl.DataFrame:
    """By agreement on content; null where that says nothing."""
    found = features(frame, inputs, {"content"}).content or []
    sets, chosen, p_answer = ContentClassifier.load(fit).predict([one for one in found if one])
    is_known = np.array([one is not None for one in found], dtype=np.bool_)
    votes = [row or [None] * inputs.n for row in frame.filter(is_known)["votes"].to_list()]
    return _beside(
        frame,
        is_known,
        sets,
        chosen=pl.Series(chosen, dtype=pl.Int32),
        p_answer=_nullable(p_answer),
        chosen_vote=pl.Series([row[place] for row, place in zip(votes, chosen, strict=True)], dtype=pl.Int8),
        first_vote=pl.Series([row[0] for row in votes], dtype=pl.Int8),
    )


def _beside(
    frame: pl.DataFrame, rows: NDArray[np.bool_], result: Prediction, **further: pl.Series
) -> pl.DataFrame:
    """Join what a classifier says of some ``rows`` (Q,) of the frame to it."""
    predictions = frame.filter(rows).select(
        "question_id",
        confidence=_nullable(result.probability),
        probability=_nullable(result.probability),
        sd=_nullable(result.sd),
        unsafe=pl.Series(result.unsafe, dtype=pl.Boolean),
        **further,
    )
    return frame.join(predictions, on="question_id", how="left", validate="1:1", maintain_order="left")


def _probed(frame: pl.DataFrame, inputs: CellInputs, method: ProbeMethod, fit: Path, position: str) -> Scored:
    """SAPLMA gives the probability of being right, SEP that of low entropy, which is a score only."""
    assert inputs.hidden is not None
    probe = method.probe.load(fit)
    states = probe_states(inputs.hidden, frame["question_id"].to_list(), position)
    scored = frame.with_columns(confidence=_nullable(probe.predict_proba(states)))
    if method.gives_probability:
        scored = scored.with_columns(probability="confidence")
    stored = probe_layers(inputs.hidden)
    return scored, {"position": position, "layers": [stored[layer] for layer in probe.layers]}


def _nullable(values: Floats) -> pl.Series:
    """The values, null for NaN."""
    return pl.Series(values).fill_nan(None)


def measure(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's metrics and comparisons."""
    partition = cell.partition()
    predictions = run.store.require("predictions", partition)
    content = {
        "stage": "measure",
        "stage_version": MEASURE_VERSION,
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
    if caution := caution_of(outcome.published.read(["metric", "value", "n"]).to_pylist()):
        run.progress.say(f"  {cell}: {caution}")
    return outcome


def caution_of(metrics: Sequence[Mapping[str, Any]]) -> str:
    """A word on measures of few rows; empty where they are of many."""
    measured = [row for row in metrics if row["metric"] == "accuracy" and row["value"] is not None]
    counts = [(round(row["value"] * row["n"]), row["n"]) for row in measured]
    return next((text for right, n in counts if (text := few_rows_caution(right, n - right))), "")


def provenance(run: Run, cell: Cell, inputs: CellInputs) -> dict[str, object]:
    """What every result row says of where it comes from, beside its model, data set and method."""
    # Of answers that were sampled elsewhere the settings are those of the import.
    sampled = {} if run.is_given(cell) else inputs.responses.manifest.get("settings", {})
    model = sampled.get("model", {})
    return {
        "revision": inputs.questions.manifest.get("revision"),
        "engine": model.get("engine", "given"),
        "model_revision": model.get("revision"),
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
    rows = rows_of(predictions)
    columns = columns_of(rows)
    if not columns.confidence:
        return METRICS.schema.empty_table(), COMPARISONS.schema.empty_table()
    arrays = (columns.confidence, columns.probability, columns.label, columns.split)
    metrics = evaluate_cell(*arrays, unsafe=columns.unsafe, settings=settings)
    metrics += _answer_metrics(rows, settings)
    comparisons = compare_cell(*arrays, reference=run.study.primary_method, settings=settings)
    return (
        pa.Table.from_pylist([asdict(row) for row in metrics], schema=METRICS.schema),
        pa.Table.from_pylist([asdict(row) for row in comparisons], schema=COMPARISONS.schema),
    )


def _answer_metrics(predictions: pl.DataFrame, settings: EvaluationSettings) -> list[MetricRow]:
    """Measure the answers that each method chooses."""
    rows = []
    known = predictions.filter(pl.col("p_answer").is_not_null())
    for (method,), frame in known.partition_by("method", as_dict=True).items():
        p_answer, chosen, first = (floats(frame[c]) for c in ("p_answer", "chosen_vote", "first_vote"))
        rows += evaluate_answers(str(method), p_answer, chosen, first, frame["split"].to_numpy(), settings)
    return rows


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
    by_name = frame.drop("split", "label").partition_by("method", as_dict=True, include_key=False)
    by_method = {name: aligned(ids["question_id"], rows) for (name,), rows in by_name.items() if name}

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
