"""Finished cells as the sources and targets of a transfer study: features and labels, no language model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from sgpu.errors import DataError, StageError, UsageError
from sgpu.evaluation.inputs import Floats
from sgpu.methods.base import METHODS, Method
from sgpu.runtime.progress import Progress
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import (
    CellInputs,
    cell_frame,
    eigenvalues,
    labels,
    published_labels,
    published_spectra,
)
from sgpu.stages.encode import answers_per_question, encoder_label
from sgpu.stages.judge import judge_label
from sgpu.storage.location import Location
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell, Study
from sgpu.study.transfer import FinishedRun, TransferStudy
from sgpu.transfer.rows import Modality, Rows, SourceCell, key_frame


@dataclass(frozen=True)
class Finished:
    """A cell of a finished run, with the tables that it is read from."""

    run: Run
    cell: Cell
    inputs: CellInputs
    modality: Modality | None  # as the transfer study says

    @property
    def versions(self) -> list[list[str]]:
        """What a fingerprint of anything made from this cell holds."""
        partition = Partition.of(model=self.cell.model, dataset=self.cell.dataset)
        predictions = self.run.store.published("predictions", partition)
        made = [["predictions", partition.path, predictions.fingerprint]] if predictions else []
        return [*self.inputs.versions, *made]


def finished_cells(study: TransferStudy) -> list[Finished]:
    """The cells that a study names, in its order.

    Raises UsageError for a folder without a finished study, a cell that it does not have, or one that two
    runs have.
    """
    found = [cell for spec in study.runs for cell in _cells_of(spec)]
    by_name: dict[Cell, Location] = {}
    for one in found:
        if one.cell in by_name:
            raise UsageError(
                f"cell {one.cell} stands in {by_name[one.cell]} and in {one.run.root}; name the `cells` of "
                "one of the runs so that it is read once"
            )
        by_name[one.cell] = one.run.root
    if len(found) < 2:
        raise UsageError(
            f"the study names {len(found)} cell: transfer needs at least 2. Add runs, or cells of a run."
        )
    return found


def _cells_of(spec: FinishedRun) -> list[Finished]:
    place = Location.of(spec.path)
    facts = place / "run.json"
    try:
        study = Study.model_validate(json.loads(facts.read_bytes())["study"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{spec.path} does not hold a finished study ({facts.name}: {error}); run `sgpu benchmark` "
            "first, or correct `runs.path`"
        ) from None
    here = place.local if place.is_local else Path()  # of object storage only tables are read
    run = Run(study, here, Progress(), kept_in=place)
    names = {str(cell): cell for cell in study.cells()}
    if unknown := [name for name in spec.cells if name not in names]:
        raise UsageError(f"{spec.path} has no cell {', '.join(unknown)}; it has {', '.join(names)}")
    try:
        chosen = [names[name] for name in spec.cells or names]
        return [Finished(run, cell, _inputs(run, cell), spec.modality) for cell in chosen]
    except StageError as error:
        raise UsageError(f"{spec.path} is not finished: {error}") from None


def _inputs(run: Run, cell: Cell) -> CellInputs:
    """The tables that spectra and labels are in; whether this machine knows the model does not matter."""
    return CellInputs(
        questions=run.store.require("questions", Partition.of(dataset=cell.dataset)),
        responses=run.store.require("responses", Partition.of(model=cell.model, dataset=cell.dataset)),
        labels=published_labels(run, cell),
        spectra=published_spectra(run, cell),
        judge=judge_label(run, cell),
        encoder=encoder_label(run),
        n=answers_per_question(run, cell),
    )


def common_n(study: TransferStudy, found: list[Finished]) -> int:
    """How many answers all spectra are made of: the study's `n`, or the smallest that a cell has."""
    sizes = {str(one.cell): one.inputs.n for one in found}
    smallest = min(sizes.values())
    if study.n is not None and study.n > smallest:
        cell = min(sizes, key=lambda name: sizes[name])
        raise UsageError(f"`n` is {study.n}, but {cell} has {smallest} answers a question; give at most that")
    return study.n or smallest


def source_cell(one: Finished, n: int) -> SourceCell:
    """The rows of a cell with spectra of ``n`` answers. Raises DataError where it has none of them."""
    identity = _identity(one.inputs)
    frame = cell_frame(one.inputs).join(
        identity, on="question_id", how="left", validate="1:1", maintain_order="left"
    )
    spectra = eigenvalues(frame, n) if n == one.inputs.n else _prefixes(one, frame, n)
    images = frame["image_sha256"].to_list()
    keys = key_frame(
        one.cell,
        frame["question_id"].to_list(),
        frame["question"].to_list(),
        images,
        frame["row_sha256"].to_list(),
    )
    notes = []
    unseen, unjudged = int(np.isnan(spectra).any(axis=1).sum()), frame["label"].null_count()
    if unseen or unjudged:
        notes.append(
            f"{one.cell}: {unseen} of {len(frame)} questions have no spectrum and {unjudged} no label. "
            "They train nothing and are counted as missing, never as wrong."
        )
    seen: Modality = "vision" if any(images) else "text"
    made = SourceCell(
        one.cell,
        one.modality or seen,
        Rows(keys, spectra, labels(frame)),
        frame["split"].to_numpy().astype(np.str_),
        notes=notes,
    )
    return replace(made, confidence=_training_free(one, frame))


def _identity(inputs: CellInputs) -> pl.DataFrame:
    """Hashes of images and rows by question; runs of earlier versions do not have those of rows."""
    columns = ["question_id", "image_sha256"]
    try:
        return pl.DataFrame(pl.from_arrow(inputs.questions.read([*columns, "row_sha256"])))
    except pa.ArrowInvalid:
        known = pl.DataFrame(pl.from_arrow(inputs.questions.read(columns)))
        return known.with_columns(pl.lit(None, dtype=pl.String).alias("row_sha256"))


def _prefixes(one: Finished, frame: pl.DataFrame, n: int) -> Floats:
    """(R, n) spectra of n of the answers, the first in an order drawn for each question.

    A study publishes them for the numbers of its `sensitivity.n_answers` and `classifier.sizes`.
    """
    found = {
        row["question_id"]: row["prefix_eigenvalues"][row["prefixes"].index(n)]
        for row in one.inputs.spectra.read(["question_id", "prefixes", "prefix_eigenvalues"]).to_pylist()
        if row["prefixes"] and n in row["prefixes"]
    }
    if not found:
        raise DataError(
            f"{one.cell} in {one.run.root} has spectra of {one.inputs.n} answers and none of {n} of them. "
            f"Add {n} to `sensitivity.n_answers` of that study and run it again (nothing is sampled again), "
            "leave the cell out, or set `n`."
        )
    empty = [np.nan] * n
    return np.asarray([found.get(question, empty) for question in frame["question_id"]], dtype=np.float64)


def _training_free(one: Finished, frame: pl.DataFrame) -> dict[str, Floats]:
    """The confidences that the run has published of methods without training, aligned with the rows."""
    partition = Partition.of(model=one.cell.model, dataset=one.cell.dataset)
    published = one.run.store.published("predictions", partition)
    if published is None:
        return {}
    said = pl.DataFrame(pl.from_arrow(published.read(["question_id", "method", "confidence"])))
    confidence = {}
    for name in said["method"].unique(maintain_order=True):
        if name in METHODS and isinstance(METHODS.get(name), Method):
            own = said.filter(pl.col("method") == name).select("question_id", "confidence")
            aligned = frame.select("question_id").join(
                own, on="question_id", how="left", maintain_order="left"
            )
            confidence[name] = aligned["confidence"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return dict(sorted(confidence.items()))
