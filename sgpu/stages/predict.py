"""Prediction stage: one confidence per method for every validation and test question of a cell."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier
from sgpu.hidden.rows import probe_layers, probe_states
from sgpu.methods.base import METHODS, Method, configured_method
from sgpu.probes.base import ProbeMethod
from sgpu.provenance import code_version
from sgpu.runtime.run import Run
from sgpu.runtime.stage import Outcome
from sgpu.stages.cell_frame import CellInputs, cell_frame, cell_inputs, eigenvalues, features
from sgpu.stages.fit import BUNDLED, Fit, fit_of, trained_methods
from sgpu.storage.store import fingerprint
from sgpu.storage.tables import PREDICTIONS
from sgpu.study.benchmark import Cell

VERSION = 2
Scored = tuple[pl.DataFrame, Mapping[str, object]]  # predictions, and the settings that they were made with


def predict(run: Run, cell: Cell) -> Outcome:
    """Publish the cell's predictions."""
    inputs = cell_inputs(run, cell)
    partition = cell.partition()
    fits = {name: fit_of(run, cell, name) for name in trained_methods(run)}
    content = {
        "stage": "predict",
        "stage_version": VERSION,
        "inputs": inputs.versions,
        "methods": sorted(run.study.methods),
        "method_settings": run.study.method_settings,
        "fits": {name: fit.fit_id if fit else None for name, fit in fits.items()},
        **METHODS.plugins(*run.study.methods),
    }
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
        made = (
            _fitted(run, frame, inputs, name, fits[name]) if name in fits else _free(run, frame, inputs, name)
        )
        if isinstance(made, str):
            unavailable.append({"cell": str(cell), "method": name, "why": made})
        else:
            parts.append(made[0].with_columns(method=pl.lit(name)))
            settings[name] = dict(made[1])
            seconds[name] = time.perf_counter() - started
    if not settings:
        whys = "; ".join(f"{row['method']}: {row['why']}" for row in unavailable)
        run.progress.say(f"  no method could score {cell}: {whys}")
    rows = pl.concat(parts, how="diagonal").select(PREDICTIONS.schema.names)
    manifest = {
        **content,
        "unavailable": unavailable,
        "settings": settings,
        "method_seconds": seconds,  # of each method's own computation, for `questions`
        "questions": frame.height,
        "code_version": code_version(),
    }
    published = run.store.write(
        PREDICTIONS, partition, rows.to_arrow().cast(PREDICTIONS.schema), key, manifest
    )
    took = time.perf_counter() - began
    return run.remember(Outcome("predict", published, reused=False, seconds=took))


def _free(run: Run, frame: pl.DataFrame, inputs: CellInputs, name: str) -> Scored | str:
    """By a method without training; what it has to choose it chooses on validation questions, unlabelled."""
    method = configured_method(name, run.study.method_settings.get(name, {}))
    assert isinstance(method, Method)
    known = features(frame, inputs, method.needs)
    if lacking := known.lacks(method.needs):
        return inputs.why_lacking(lacking)
    validation = frame.filter(pl.col("split") == "validation")
    if method.tune and not validation.is_empty() and not run.study.method_settings.get(name):
        method = method.tune(features(validation, inputs, method.needs))
    return frame.with_columns(confidence=_nullable(method.confidence(known))), method.settings


def _fitted(run: Run, frame: pl.DataFrame, inputs: CellInputs, name: str, fit: Fit | None) -> Scored | str:
    if fit is None or fit.folder is None:
        return (fit.problem if fit else None) or "it was not fitted"
    settings: Mapping[str, object] = {}
    if name in BUNDLED:
        made = _classified(frame, inputs, fit.folder)
    else:
        method: ProbeMethod = METHODS.get(name)
        made, settings = _probed(frame, inputs, method, fit.folder, run.study.probe_position(method))
    return made.with_columns(fit_id=pl.lit(fit.fit_id)), settings


def _classified(frame: pl.DataFrame, inputs: CellInputs, fit: Path) -> pl.DataFrame:
    values = eigenvalues(frame, inputs.n)
    known = np.asarray(~np.isnan(values).any(axis=1))
    result = GPClassifier.load(fit).predict(values[known])
    said = frame.filter(known).select(
        "question_id",
        confidence=_nullable(result.probability),
        probability=_nullable(result.probability),
        sd=_nullable(result.sd),
        unsafe=pl.Series(result.unsafe, dtype=pl.Boolean),
    )
    return frame.join(said, on="question_id", how="left", validate="1:1", maintain_order="left")


def _probed(frame: pl.DataFrame, inputs: CellInputs, method: ProbeMethod, fit: Path, position: str) -> Scored:
    """SAPLMA gives the probability of being right, SEP that of low entropy, which is a score only."""
    assert inputs.hidden is not None
    probe = method.probe.load(fit)
    states = probe_states(inputs.hidden, frame["question_id"].to_list(), position)
    made = frame.with_columns(confidence=_nullable(probe.predict_proba(states)))
    if method.gives_probability:
        made = made.with_columns(probability="confidence")
    stored = probe_layers(inputs.hidden)
    return made, {"position": position, "layers": [stored[layer] for layer in probe.layers]}


def _nullable(values: Floats) -> pl.Series:
    """The values, null for NaN."""
    return pl.Series(values).fill_nan(None)
