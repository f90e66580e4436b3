"""What each fit of a study is trained on: training questions with all that the method needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.gp.rows import write_rows
from sgpu.gp.train_job import FitTask
from sgpu.stages.cell_frame import CellInputs, cell_frame, cell_inputs, eigenvalues, labels
from sgpu.stages.probe import position_of, write_probe_rows
from sgpu.stages.run import Run, as_settings
from sgpu.study import Cell

LOCAL, GLOBAL = "sgpu", "global_sgpu"
ALL_CELLS = "all cells"
# A name that no model can have: those begin with a letter or a digit.
GLOBAL_KEY = "_global"
# Two classes with a few rows each; below this a fit says nothing about held-out questions.
MIN_ROWS = 4


@dataclass(frozen=True)
class Prepared:
    """The training rows of one fit, or why there are none; ``cell`` is None for the pooled classifier."""

    method: str
    cell: Cell | None
    inputs: Sequence[CellInputs]
    task: FitTask | None
    rows: int
    problem: str | None = None


@dataclass(frozen=True)
class _Cell:
    """One cell's questions with their spectra."""

    cell: Cell
    inputs: CellInputs
    frame: pl.DataFrame

    def training(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Spectra (M, N) and labels (M,) of the training questions that have both."""
        frame = self.frame.filter((pl.col("split") == "train") & pl.col("label").is_not_null())
        values, known = eigenvalues(frame, self.inputs.n), labels(frame).astype(np.int64)
        usable = ~np.isnan(values).any(axis=1)
        return values[usable], known[usable]


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
    return _classifier(run, LOCAL, known.cell, [known.inputs], *known.training())


def _global(run: Run, known: Sequence[_Cell]) -> Prepared:
    inputs = [one.inputs for one in known]
    sizes = sorted({one.inputs.n for one in known})
    if len(known) < 2:
        return Prepared(GLOBAL, None, inputs, None, 0, "the study has one cell, so there is nothing to pool")
    if len(sizes) > 1:
        why = f"its cells have {' and '.join(map(str, sizes))} answers a question; a spectrum has one length"
        return Prepared(GLOBAL, None, inputs, None, 0, why)
    spectra, label = zip(*(one.training() for one in known), strict=True)
    return _classifier(run, GLOBAL, None, inputs, np.concatenate(spectra), np.concatenate(label))


def _classifier(
    run: Run,
    method: str,
    cell: Cell | None,
    inputs: Sequence[CellInputs],
    spectra: NDArray[np.float64],
    label: NDArray[np.int64],
) -> Prepared:
    if why := _too_few(label):
        return Prepared(method, cell, inputs, None, len(label), why)
    rows = fit_folder(run, cell, method) / "rows.arrow"
    rows.parent.mkdir(parents=True, exist_ok=True)
    write_rows(rows, spectra, label)
    task = FitTask(fit_key(cell, method), rows, as_settings(run.study.classifier), run.study.seed)
    return Prepared(method, cell, inputs, task, len(label))


def _too_few(label: NDArray[np.int64]) -> str | None:
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
