"""Finished cells as the sources and targets of a transfer study: features and labels, no language model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from sgpu.errors import DataError, StageError, UsageError
from sgpu.evaluation.inputs import Floats
from sgpu.methods.base import METHODS, Method
from sgpu.runtime.progress import Progress
from sgpu.stages.cell_frame import (
    CellInputs,
    aligned,
    cell_frame,
    cell_tables,
    eigenvalues,
    floats,
    labels_of_answers,
    rows_of,
    subset_spectra,
)
from sgpu.stages.run import Execution, Run, run_facts
from sgpu.storage.location import Location
from sgpu.study.benchmark import Cell, Study
from sgpu.study.transfer import FinishedRun, TransferStudy
from sgpu.transfer.rows import Modality, SourceCell, TransferRows, key_frame


@dataclass(frozen=True)
class FinishedCell:
    """A cell of a finished run, with the tables that it is read from."""

    run: Run
    cell: Cell
    inputs: CellInputs
    modality: Modality | None  # as the transfer study says

    @property
    def versions(self) -> list[list[str]]:
        """What a fingerprint of anything made from this cell holds."""
        predictions = self.run.store.published("predictions", self.cell.partition())
        extra = [["predictions", predictions.partition.path, predictions.fingerprint]] if predictions else []
        return [*self.inputs.versions, *extra]


@dataclass
class TransferRun(Execution[TransferStudy]):
    """One execution of a transfer study, with the cells that it reads."""

    @cached_property
    def finished(self) -> list[FinishedCell]:
        """The cells of the study as their runs have published them."""
        return finished_cells(self.study)

    @cached_property
    def n(self) -> int:
        """Answers that every spectrum is made of."""
        return common_n(self.study, self.finished)

    @cached_property
    def cells(self) -> dict[Cell, SourceCell]:
        """Their rows."""
        return {source.cell: source_cell(source, self.n) for source in self.finished}


def finished_cells(study: TransferStudy) -> list[FinishedCell]:
    """The cells that a study names, in its order.

    Raises UsageError for a folder without a finished study, a cell that it does not have, or one that two
    runs have.
    """
    cells = [cell for spec in study.runs for cell in _cells_of(spec)]
    by_name: dict[Cell, Location] = {}
    for finished in cells:
        if finished.cell in by_name:
            raise UsageError(
                f"cell {finished.cell} stands in {by_name[finished.cell]} and in {finished.run.root}; "
                "name the `cells` of one of the runs so that it is read once"
            )
        by_name[finished.cell] = finished.run.root
    if len(cells) < 2:
        raise UsageError(
            f"the study names {len(cells)} cell: transfer needs at least 2. Add runs, or cells of a run."
        )
    return cells


def _cells_of(spec: FinishedRun) -> list[FinishedCell]:
    root = Location.of(spec.path)
    with run_facts(spec.path, "first, or correct `runs.path`") as facts:
        study = Study.model_validate(facts["study"])
    working = root.local if root.is_local else Path()  # of object storage only tables are read
    run = Run(study, working, Progress(), kept_in=root)
    names = {str(cell): cell for cell in study.cells()}
    if unknown := [name for name in spec.cells if name not in names]:
        raise UsageError(f"{spec.path} has no cell {', '.join(unknown)}; it has {', '.join(names)}")
    try:
        chosen = [names[name] for name in spec.cells or names]
        return [FinishedCell(run, cell, cell_tables(run, cell), spec.modality) for cell in chosen]
    except StageError as error:
        raise UsageError(f"{spec.path} is not finished: {error}") from None


def common_n(study: TransferStudy, cells: list[FinishedCell]) -> int:
    """How many answers all spectra are made of: the study's `n`, or the smallest that a cell has."""
    smallest = min(cells, key=lambda finished: finished.inputs.n)
    n = smallest.inputs.n
    if study.n is not None and study.n > n:
        raise UsageError(
            f"`n` is {study.n}, but {smallest.cell} has {n} answers a question; give at most that"
        )
    return study.n or n


def source_cell(cell: FinishedCell, n: int) -> SourceCell:
    """The rows of a cell with spectra of ``n`` answers. Raises DataError where it has none of them."""
    hashes = rows_of(cell.inputs.questions, ["question_id", "image_sha256", "row_sha256"])
    frame = cell_frame(cell.inputs).join(
        hashes, on="question_id", how="left", validate="1:1", maintain_order="left"
    )
    spectra = eigenvalues(frame, n) if n == cell.inputs.n else _prefixes(cell, frame, n)
    unseen, unjudged = int(np.isnan(spectra).any(axis=1).sum()), frame["label"].null_count()
    note = (
        f"{cell.cell}: {unseen} of {len(frame)} questions have no spectrum and {unjudged} no label. "
        "They train nothing and are counted as missing, never as wrong."
    )
    modality: Modality = "vision" if any(frame["image_sha256"]) else "text"
    return SourceCell(
        cell.cell,
        cell.modality or modality,
        TransferRows(key_frame(cell.cell, frame), spectra, labels_of_answers(frame)),
        frame["split"].to_numpy().astype(np.str_),
        _training_free(cell, frame),
        [note] if unseen or unjudged else [],
    )


def _prefixes(cell: FinishedCell, frame: pl.DataFrame, n: int) -> Floats:
    """(R, n) spectra of n of the answers, the first in an order drawn for each question.

    A study publishes them for the numbers of its `sensitivity.n_answers` and `classifier.sizes`.
    """
    spectra = subset_spectra(cell.inputs.spectra, frame["question_id"].to_list(), [n])[n]
    if np.isnan(spectra).all():
        raise DataError(
            f"{cell.cell} in {cell.run.root} has spectra of {cell.inputs.n} answers and none of {n} of them. "
            f"Add {n} to `sensitivity.n_answers` of that study and run it again (nothing is sampled again), "
            "leave the cell out, or set `n`."
        )
    return spectra


def _training_free(cell: FinishedCell, frame: pl.DataFrame) -> dict[str, Floats]:
    """The confidences that the run has published of methods without training, aligned with the rows."""
    published = cell.run.store.published("predictions", cell.cell.partition())
    if published is None:
        return {}
    confidences = rows_of(published, ["question_id", "method", "confidence"])
    by_method = confidences.partition_by("method", as_dict=True, include_key=False)
    return {
        name: floats(aligned(frame["question_id"], rows)["confidence"])
        for (name,), rows in sorted(by_method.items())
        if name in METHODS and isinstance(METHODS.get(name), Method)
    }
