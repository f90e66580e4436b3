"""Fit stage: one classifier a cell, all of them by one Ray Train job."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from sgpu.encoders import load_encoder
from sgpu.fitted import BUNDLE, FittedModel
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.persistence import write_json
from sgpu.gp.train_job import FitResult, FitTask, fingerprint, run_train_job, write_rows
from sgpu.provenance import code_version
from sgpu.stages.cell_frame import CellInputs, cell_frame, cell_inputs, eigenvalues, labels
from sgpu.stages.run import Run, as_settings
from sgpu.stages.session import ray_session
from sgpu.study import Cell

METHOD = "sgpu"
CURRENT = "current.json"
# Two classes with a few rows each; below this a fit says nothing about held-out questions.
MIN_ROWS = 4


@dataclass(frozen=True)
class CellFit:
    """The classifier of a cell as it stands, or the problem why it has none."""

    cell: str
    fit_id: str
    folder: Path | None
    problem: str | None

    def load(self) -> GPClassifier:
        assert self.folder is not None
        return GPClassifier.load(self.folder)


@dataclass(frozen=True)
class _Prepared:
    """A cell's training rows, or why there are none."""

    cell: Cell
    inputs: CellInputs
    task: FitTask | None
    rows: int
    problem: str | None = None


def fit_of(run: Run, cell: Cell) -> CellFit | None:
    """The cell's fit as the last run of `fit_cells` left it; None if there was none."""
    path = _folder(run, cell) / CURRENT
    if METHOD not in run.study.methods or not path.is_file():
        return None
    content = json.loads(path.read_text())
    folder = content["folder"]
    return CellFit(
        str(cell), content["fit_id"], _folder(run, cell) / folder if folder else None, content["problem"]
    )


def fit_cells(run: Run, cells: Sequence[Cell]) -> list[CellFit]:
    """Fit every cell's classifier on its training questions; finished fits of the same rows are kept."""
    if METHOD not in run.study.methods:
        return []
    started = time.monotonic()
    prepared = [_prepare(run, cell) for cell in cells]
    due = [p.task for p in prepared if p.task and not _bundle(run, p).is_file()]
    results: dict[str, FitResult] = {}
    if due:
        workers = min(len(due), run.study.resources.fitters)
        if workers:
            with ray_session(run.address):
                found = run_train_job(due, run.out / "fits", workers)
        else:
            found = run_train_job(due, run.out / "fits", 0)
        results = {result.key: result for result in found}
    fits = [_finish(run, p, results.get(_key(p.cell))) for p in prepared]
    for p, fit in zip(prepared, fits, strict=True):
        what = fit.problem or (f"{time.monotonic() - started:7.1f} s" if due else " unchanged, not run again")
        run.progress.say(f"fit      {fit.cell:<46} {p.rows:>6} rows  {what.lstrip()}")
    return fits


def _prepare(run: Run, cell: Cell) -> _Prepared:
    inputs = cell_inputs(run, cell)
    frame = cell_frame(inputs).filter((pl.col("split") == "train") & pl.col("label").is_not_null())
    values, known = eigenvalues(frame, inputs.n), labels(frame).astype(np.int64)
    usable = ~np.isnan(values).any(axis=1)
    values, known = values[usable], known[usable]
    if len(known) < MIN_ROWS:
        why = f"{len(known)} training questions have a label and a spectrum; at least {MIN_ROWS} are needed"
        return _Prepared(cell, inputs, None, len(known), why)
    if len(np.unique(known)) < 2:
        why = (
            f"all {len(known)} training labels are {known[0]}; a classifier needs both classes. "
            "Use other questions or check the judge."
        )
        return _Prepared(cell, inputs, None, len(known), why)
    rows = _folder(run, cell) / "rows.arrow"
    rows.parent.mkdir(parents=True, exist_ok=True)
    write_rows(rows, values, known)
    return _Prepared(
        cell, inputs, FitTask(_key(cell), rows, as_settings(run.study.classifier), run.study.seed), len(known)
    )


def _finish(run: Run, prepared: _Prepared, result: FitResult | None) -> CellFit:
    """Make a new fit a whole bundle, and note which fit is the cell's current one."""
    cell, task = prepared.cell, prepared.task
    problem = prepared.problem or (result.problem if result else None)
    if task is None or problem:
        fit = CellFit(str(cell), "none", None, problem)
    else:
        folder = _bundle(run, prepared).parent
        if not (folder / BUNDLE).is_file():
            _save_bundle(run, prepared, folder)
        fit = CellFit(str(cell), folder.name, folder, None)
    target = _folder(run, cell)
    target.mkdir(parents=True, exist_ok=True)
    content = {**asdict(fit), "folder": fit.folder.name if fit.folder else None}
    write_json(target / CURRENT, content)
    return fit


def _save_bundle(run: Run, prepared: _Prepared, folder: Path) -> None:
    inputs, study = prepared.inputs, run.study
    dtypes = {dtype for dtype in inputs.spectra.read(["encoder_dtype"])["encoder_dtype"].to_pylist() if dtype}
    dtype = dtypes.pop() if len(dtypes) == 1 else study.encoder.dtype
    FittedModel(
        gp=GPClassifier.load(folder),
        encoder=study.encoder.name,
        encoder_dtype=dtype,
        n_answers=inputs.n,
        encoder_fingerprint=load_encoder(study.encoder.name, dtype).fingerprint,
        provenance={
            "study": study.name,
            "model": prepared.cell.model,
            "dataset": prepared.cell.dataset,
            "judge": inputs.judge,
            "rows": prepared.rows,
            "seed": study.seed,
            "tables": inputs.versions,
            "code_version": code_version(),
        },
    ).save(folder)


def _bundle(run: Run, prepared: _Prepared) -> Path:
    assert prepared.task is not None
    return _folder(run, prepared.cell) / fingerprint(prepared.task) / BUNDLE


def _key(cell: Cell) -> str:
    return f"{cell.model}/{cell.dataset}"


def _folder(run: Run, cell: Cell) -> Path:
    return run.out / "fits" / cell.model / cell.dataset
