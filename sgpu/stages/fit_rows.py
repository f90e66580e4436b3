"""What each fit of a study is trained on: training questions with all that the method needs.

For the classifier these are spectra of one cell or of a pool, of all answers of a question and of fewer of
them. The file of a probe's rows names the published hidden states and does not repeat them: those of a cell
can be half a gigabyte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.errors import DataError
from sgpu.gp.content import fit_content_rows, write_content_rows
from sgpu.gp.fitting import RECIPE, TrainingRows
from sgpu.gp.heads import SIZE_FREE
from sgpu.gp.persistence import DESCRIPTION, FORMAT, write_json, write_training_rows
from sgpu.gp.pooling import row_weights
from sgpu.gp.representation import sized_rows
from sgpu.hidden.rows import probe_states, probe_width
from sgpu.methods.base import METHODS, Method
from sgpu.probes.base import LABEL, Probe, ProbeMethod
from sgpu.stages.cell_frame import (
    CellInputs,
    LabelledSpectra,
    cell_frame,
    cell_inputs,
    features,
    labels_of_answers,
    subset_spectra,
)
from sgpu.stages.run import Run
from sgpu.stages.train_job import FitTask, Trainer
from sgpu.storage.store import Partition, Store
from sgpu.study.benchmark import Cell
from sgpu.study.specs import ClassifierSpec

Floats = NDArray[np.float64]
LOCAL, GLOBAL, PLUS = "sgpu", "global_sgpu", "sgpu_plus"
ALL_CELLS = "all cells"
# A name that no model can have: those begin with a letter or a digit.
GLOBAL_KEY = "_global"
CONTENT_TRAINER = Trainer(fit_content_rows, DESCRIPTION, ("content", RECIPE, FORMAT))
# Two classes with a few rows each; below this a fit says nothing about held-out questions.
MIN_ROWS = 4
# Questions are seen with every size as long as there are no more rows than this: then with fewer each.
SIZED_ROWS = 30_000


@dataclass(frozen=True)
class Training:
    """Spectra (M, n) of M training questions for each number of answers n, ``own`` the largest; labels (M,).

    A pool has the ``cell`` (M,) of each question, and ``weights`` (M,) where they do not count alike.
    """

    by_size: Mapping[int, Floats]
    n: int
    label: NDArray[np.int64]
    weights: Floats | None = None
    cell: NDArray[np.int64] | None = None

    def own(self) -> TrainingRows:
        """Rows of the classifier of all N answers."""
        return self._rows(self.n)

    def others(self, kind: str, seed: int) -> dict[str, TrainingRows]:
        """Rows of the classifiers for other numbers of answers, by their place in a bundle."""
        smaller = [n for n in self.by_size if n < self.n]
        if kind == "none" or not smaller:
            return {}
        if kind == "heads":
            return {f"heads/{n}": self._rows(n) for n in smaller}
        sized = sized_rows(self.by_size, seed, SIZED_ROWS)
        weights = None if self.weights is None else self.weights[sized.question]
        # A search of hyper-parameters on a part of the rows sees every size of every cell.
        cell = 0 if self.cell is None else self.cell[sized.question]
        group = (cell * (self.n + 1) + sized.size).astype(np.int64)
        return {SIZE_FREE: TrainingRows(sized.x, self.label[sized.question], weights, group)}

    def _rows(self, n: int) -> TrainingRows:
        complete = ~np.isnan(self.by_size[n]).any(axis=1)
        weights = None if self.weights is None else self.weights[complete]
        cell = None if self.cell is None else self.cell[complete]
        return TrainingRows(self.by_size[n][complete], self.label[complete], weights, cell)


def pooled(parts: Sequence[Training], pool: str) -> Training:
    """The questions of several cells of one N as one training set; see `sgpu.gp.pooling.row_weights`."""
    sizes = sorted(set.intersection(*(set(part.by_size) for part in parts)))
    cell = np.repeat(np.arange(len(parts)), [len(part.label) for part in parts])
    by_size = {n: np.concatenate([part.by_size[n] for part in parts]) for n in sizes}
    label = np.concatenate([part.label for part in parts])
    return Training(by_size, parts[0].n, label, row_weights(cell, pool), cell)


def write_probe_rows(
    path: Path, store: Store, inputs: CellInputs, frame: pl.DataFrame, method: ProbeMethod, position: str
) -> int:
    """Write the training and validation rows of a probe that have a target; returns how many train."""
    assert inputs.hidden is not None
    target = _targets(frame, inputs, method.target)
    content: dict[str, Any] = {
        # Relative on this machine, so that a folder can be moved without a new fit.
        "store": os.path.relpath(store.root.local, path.parent) if store.root.is_local else str(store.root),
        "partition": [list(pair) for pair in inputs.hidden.partition.values],
        "fingerprint": inputs.hidden.fingerprint,
        "position": position,
    }
    for split in ("train", "validation"):
        chosen = (frame["split"] == split).to_numpy() & np.isfinite(target)
        ids = frame["question_id"].filter(pl.Series(chosen))
        content[split] = {"question_ids": ids.to_list(), "targets": target[chosen].tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
    return len(content["train"]["targets"])


def _targets(frame: pl.DataFrame, inputs: CellInputs, target: str) -> NDArray[np.float64]:
    """(Q,) what the probe learns; NaN where it is unknown."""
    if target == LABEL:
        return labels_of_answers(frame)
    method = METHODS.get(target)
    assert isinstance(method, Method)
    return np.asarray(method.compute(features(frame, inputs, method.needs)), dtype=np.float64)


def probe_trainer(method: ProbeMethod) -> Trainer:
    """How the training job fits a probe to the rows of `write_probe_rows`."""
    own, plugins = (method.name, method.version, FORMAT), METHODS.plugins(method.name).values()
    recipe: tuple[str | int, ...] = (*own, *plugins)
    return Trainer(partial(_fit_probe, method), f"{method.probe.name}.json", recipe)


def _fit_probe(method: ProbeMethod, rows: Path, settings: Mapping[str, Any], seed: int) -> Probe[Any]:
    content = json.loads(rows.read_text())
    root: str = content["store"]
    store = Store(root if "://" in root else (rows.parent / root).resolve())
    hidden = store.require("hidden_states", Partition(tuple((k, v) for k, v in content["partition"])))
    if hidden.fingerprint != content["fingerprint"]:
        raise DataError(f"the hidden states of {hidden.partition} have changed since {rows} was written")
    arrays: list[NDArray[Any]] = []
    for split in ("train", "validation"):
        arrays += [
            probe_states(hidden, content[split]["question_ids"], content["position"]),
            np.asarray(content[split]["targets"], dtype=np.float64),
        ]
    return method.make(settings, seed, content["position"]).fit(*arrays)


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

    def training(self, spec: ClassifierSpec) -> Training:
        """The training questions that have a label and a spectrum, the latter also of the smaller sizes."""
        rows, n = LabelledSpectra.of(self.frame, self.inputs.n), self.inputs.n
        sizes = [] if spec.other_n == "none" else sorted(size for size in spec.sizes if size < n)
        smaller = subset_spectra(self.inputs.spectra, self.frame["question_id"].to_list(), sizes)
        by_size = {size: spectra[rows.trains] for size, spectra in smaller.items()}
        by_size = {size: spectra for size, spectra in by_size.items() if not np.isnan(spectra).all()}
        return Training(
            {**by_size, n: rows.spectra[rows.trains]}, n, rows.label[rows.trains].astype(np.int64)
        )


def prepare_fits(run: Run, cells: Sequence[Cell], methods: Sequence[str]) -> list[Prepared]:
    """Prepare the fits of these trained methods, cell by cell, the pooled one last."""
    if not methods:
        return []
    prepared, cell_rows = [], []
    for cell in cells:
        inputs = cell_inputs(run, cell)
        cell_rows.append(_Cell(cell, inputs, cell_frame(inputs)))
        for method in methods:
            if method == LOCAL:
                training = cell_rows[-1].training(run.study.classifier)
                prepared.append(_classifier(run, Prepared(LOCAL, cell, [inputs], None, 0), training))
            elif method == PLUS:
                prepared.append(_plus(run, cell_rows[-1]))
            elif method != GLOBAL:
                prepared.append(_probe(run, cell_rows[-1], method))
    if GLOBAL in methods:
        prepared.append(_global(run, cell_rows))
    return prepared


def fit_key(cell: Cell | None, method: str) -> str:
    """Where the fits of a method stand under ``fits``; those of a cell's classifier at the cell itself."""
    if cell is None:
        return GLOBAL_KEY
    key = f"{cell.model}/{cell.dataset}"
    return key if method == LOCAL else f"{key}/{method}"


def fit_folder(run: Run, cell: Cell | None, method: str) -> Path:
    return run.out / "fits" / fit_key(cell, method)


def _global(run: Run, cell_rows: Sequence[_Cell]) -> Prepared:
    none = Prepared(GLOBAL, None, [rows.inputs for rows in cell_rows], None, 0)
    sizes = sorted({rows.inputs.n for rows in cell_rows})
    if len(cell_rows) < 2:
        return replace(none, problem="the study has one cell, so there is nothing to pool")
    if len(sizes) > 1:
        why = f"its cells have {' and '.join(map(str, sizes))} answers a question; a spectrum has one length"
        return replace(none, problem=why)
    parts = [rows.training(run.study.classifier) for rows in cell_rows]
    return _classifier(run, none, pooled(parts, run.study.classifier.pool))


def _classifier(run: Run, prepared: Prepared, training: Training) -> Prepared:
    prepared = replace(prepared, rows=len(training.label))
    if why := too_few(training.label):
        return replace(prepared, problem=why)
    spec, key = run.study.classifier, fit_key(prepared.cell, prepared.method)
    others = {
        path: classifier_task(run, f"{key}/{path}", rows, spec.of_one_fit())
        for path, rows in training.others(spec.other_n, run.study.seed).items()
        if too_few(rows.y) is None
    }
    task = classifier_task(run, key, training.own(), spec.of_one_fit())
    return replace(prepared, task=task, others=others)


def classifier_task(run: Run, key: str, rows: TrainingRows, settings: Mapping[str, Any]) -> FitTask:
    """The fit of a classifier to these rows, which are written beside its fits."""
    file = run.out / "fits" / key / "rows.arrow"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_training_rows(file, rows)
    return FitTask(key, file, settings, run.study.seed, seconds=classifier_seconds(len(rows.y)))


def classifier_seconds(rows: int) -> float:
    """Return about how long a fit to so many rows takes on one thread (`bench.pooled_fit`)."""
    return 0.5 + 1.2e-4 * rows


def too_few(label: NDArray[np.int64]) -> str | None:
    """Return why training rows with these labels (M,) cannot be fitted; None if they can."""
    if not len(label):
        return "no training question has a label and a spectrum"
    if len(label) < MIN_ROWS:
        return f"{len(label)} training questions have a label and a spectrum; at least {MIN_ROWS} are needed"
    if len(np.unique(label)) < 2:
        return (
            f"all {len(label)} training labels are {label[0]}; a classifier needs both classes. "
            "Use other questions or check the judge."
        )
    return None


def _plus(run: Run, rows: _Cell) -> Prepared:
    """Prepare the fit to agreement on content of a cell's training questions."""
    frame = rows.frame.filter(pl.col("split") == "train")
    found, label = features(frame, rows.inputs, {"content"}).content or [], labels_of_answers(frame)
    chosen = [i for i, one in enumerate(found) if one and not np.isnan(label[i])]
    none = Prepared(PLUS, rows.cell, [rows.inputs], None, len(chosen))
    if why := too_few(label[chosen].astype(np.int64)):
        return replace(none, problem=why)
    file = fit_folder(run, rows.cell, PLUS) / "rows.arrow"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows_of_fit = frame[chosen]
    agreements = [one for i in chosen if (one := found[i])]
    write_content_rows(file, agreements, rows_of_fit["label"].to_list(), rows_of_fit["votes"].to_list())
    settings, seconds = run.study.classifier.of_agreement(), 2 * classifier_seconds(len(chosen))
    task = FitTask(fit_key(rows.cell, PLUS), file, settings, run.study.seed, CONTENT_TRAINER, seconds=seconds)
    return replace(none, task=task)


def _probe(run: Run, cell_rows: _Cell, method: str) -> Prepared:
    inputs = [cell_rows.inputs]
    if cell_rows.inputs.hidden is None:
        return Prepared(method, cell_rows.cell, inputs, None, 0, cell_rows.inputs.why_no_hidden)
    rows, probe = fit_folder(run, cell_rows.cell, method) / "rows.json", METHODS.get(method)
    position = run.study.probe_position(probe)
    count = write_probe_rows(rows, run.store, cell_rows.inputs, cell_rows.frame, probe, position)
    settings: Mapping[str, Any] = run.study.method_settings.get(method, {})
    task = FitTask(
        fit_key(cell_rows.cell, method),
        rows,
        settings,
        run.study.seed,
        probe_trainer(probe),
        seconds=probe.seconds * count * probe_width(cell_rows.inputs.hidden),
    )
    return Prepared(method, cell_rows.cell, inputs, task, count)
