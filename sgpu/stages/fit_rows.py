"""What each fit of a study is trained on: training questions with all that the method needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.gp.fitting import TrainingRows
from sgpu.gp.rows import write_training_rows
from sgpu.runtime.run import Run
from sgpu.runtime.train_job import FitTask
from sgpu.stages.cell_frame import CellInputs, cell_frame, cell_inputs, eigenvalues, labels
from sgpu.stages.probe import position_of, write_probe_rows
from sgpu.stages.subsets import Training, pooled, subset_spectra
from sgpu.study.benchmark import Cell

LOCAL, GLOBAL = "sgpu", "global_sgpu"
ALL_CELLS = "all cells"
# A name that no model can have: those begin with a letter or a digit.
GLOBAL_KEY = "_global"
# Two classes with a few rows each; below this a fit says nothing about held-out questions.
MIN_ROWS = 4


@dataclass(frozen=True)
class Prepared:
    """The training rows of one fit, or why there are none; ``cell`` is None for the pooled classifier.

    ``others`` are the fits for other numbers of answers by their place in the bundle.
    """

    method: str
    cell: Cell | None
    inputs: Sequence[CellInputs]
    task: FitTask | None
    rows: int
    problem: str | None = None
    others: Mapping[str, FitTask] = field(default_factory=dict)


@dataclass(frozen=True)
class _Cell:
    """One cell's questions with their spectra."""

    cell: Cell
    inputs: CellInputs
    frame: pl.DataFrame

    def training(self, sizes: Sequence[int]) -> Training:
        """The training questions that have a label and a spectrum, the latter of smaller ``sizes`` too."""
        frame = self.frame.filter((pl.col("split") == "train") & pl.col("label").is_not_null())
        values, known = eigenvalues(frame, self.inputs.n), labels(frame).astype(np.int64)
        usable = ~np.isnan(values).any(axis=1)
        smaller = subset_spectra(self.inputs.spectra, frame["question_id"].to_list(), sizes)
        by_size = {n: rows[usable] for n, rows in smaller.items() if not np.isnan(rows).all()}
        return Training({**by_size, self.inputs.n: values[usable]}, self.inputs.n, known[usable])


def prepare(run: Run, cells: Sequence[Cell], methods: Sequence[str]) -> list[Prepared]:
    """The fits of these trained methods, cell by cell, the pooled one last."""
    if not methods:
        return []
    prepared, known = [], []
    for cell in cells:
        inputs = cell_inputs(run, cell)
        known.append(_Cell(cell, inputs, cell_frame(inputs)))
        for method in methods:
            if method == LOCAL:
                prepared.append(_local(run, known[-1]))
            elif method != GLOBAL:
                prepared.append(_probe(run, known[-1], method))
    if GLOBAL in methods:
        prepared.append(_global(run, known))
    return prepared


def fit_key(cell: Cell | None, method: str) -> str:
    """Where the fits of a method stand under ``fits``; those of a cell's classifier at the cell itself."""
    if cell is None:
        return GLOBAL_KEY
    key = f"{cell.model}/{cell.dataset}"
    return key if method == LOCAL else f"{key}/{method}"


def fit_folder(run: Run, cell: Cell | None, method: str) -> Path:
    return run.out / "fits" / fit_key(cell, method)


def _local(run: Run, known: _Cell) -> Prepared:
    training = known.training(_sizes(run, known.inputs.n))
    return _classifier(run, Prepared(LOCAL, known.cell, [known.inputs], None, 0), training)


def _global(run: Run, known: Sequence[_Cell]) -> Prepared:
    none = Prepared(GLOBAL, None, [one.inputs for one in known], None, 0)
    sizes = sorted({one.inputs.n for one in known})
    if len(known) < 2:
        return replace(none, problem="the study has one cell, so there is nothing to pool")
    if len(sizes) > 1:
        why = f"its cells have {' and '.join(map(str, sizes))} answers a question; a spectrum has one length"
        return replace(none, problem=why)
    parts = [one.training(_sizes(run, sizes[0])) for one in known]
    return _classifier(run, none, pooled(parts, run.study.classifier.pool))


def _sizes(run: Run, n: int) -> list[int]:
    spec = run.study.classifier
    return [] if spec.other_n == "none" else sorted(size for size in spec.sizes if size < n)


def _classifier(run: Run, prepared: Prepared, training: Training) -> Prepared:
    prepared = replace(prepared, rows=len(training.label))
    if why := too_few(training.label):
        return replace(prepared, problem=why)
    spec, folder = run.study.classifier, fit_folder(run, prepared.cell, prepared.method)
    key = fit_key(prepared.cell, prepared.method)

    def task(rows: TrainingRows, place: str = "") -> FitTask:
        file = folder / place / "rows.arrow"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_training_rows(file, rows.x, rows.y, rows.weights, rows.cells)
        return FitTask(f"{key}/{place}".rstrip("/"), file, spec.of_one_fit(), run.study.seed)

    made = training.others(spec.other_n, run.study.seed)
    others = {place: task(rows, place) for place, rows in made.items() if too_few(rows.y) is None}
    return replace(prepared, task=task(training.own()), others=others)


def too_few(label: NDArray[np.int64]) -> str | None:
    """Why training rows with these labels (M,) cannot be fitted; None if they can."""
    if len(label) < MIN_ROWS:
        return f"{len(label)} training questions have a label and a spectrum; at least {MIN_ROWS} are needed"
    if len(np.unique(label)) < 2:
        return (
            f"all {len(label)} training labels are {label[0]}; a classifier needs both classes. "
            "Use other questions or check the judge."
        )
    return None


def _probe(run: Run, known: _Cell, method: str) -> Prepared:
    inputs = [known.inputs]
    if known.inputs.hidden is None:
        return Prepared(method, known.cell, inputs, None, 0, known.inputs.why_no_hidden)
    rows = fit_folder(run, known.cell, method) / "rows.json"
    position = position_of(run.study, method)
    count = write_probe_rows(rows, run.store, known.inputs, known.frame, method, position)
    settings: Mapping[str, Any] = run.study.method_settings.get(method, {})
    task = FitTask(fit_key(known.cell, method), rows, settings, run.study.seed, method)
    return Prepared(method, known.cell, inputs, task, count)
