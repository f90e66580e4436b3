"""Sensitivity stage: what changes with the kernel, the encoder, the answers, the training rows or the judge.

Nothing is sampled again: everything is made of the answers that are stored. A variant is a classifier that is
refitted with one setting changed; under the labels of other judges nothing is fitted again either.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.evaluation.cell import evaluate_cell
from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier
from sgpu.gp.fitting import TrainingRows
from sgpu.gp.heads import SIZE_FREE
from sgpu.gp.kernels import KERNELS
from sgpu.gp.representation import size_free
from sgpu.methods.spectral import largest_eigenvalue, spectral_entropy
from sgpu.provenance import code_version
from sgpu.runtime.stage import Outcome
from sgpu.stages.cell_frame import (
    LabelledSpectra,
    aligned,
    cell_frame,
    cell_inputs,
    cell_tables,
    eigenvalues,
    label_array,
    rows_of,
    subset_spectra,
)
from sgpu.stages.encode import answers_per_question, encoder_label
from sgpu.stages.evaluate import columns_of, evaluation_settings, provenance
from sgpu.stages.fit import fit_of, fit_tasks
from sgpu.stages.fit_rows import (
    GLOBAL,
    GLOBAL_KEY,
    LOCAL,
    Training,
    classifier_task,
    fit_key,
    pooled,
    too_few,
)
from sgpu.stages.judge import second_labels
from sgpu.stages.run import Run, as_settings
from sgpu.stages.train_job import FitResult, FitTask
from sgpu.storage.store import fingerprint
from sgpu.storage.tables import SENSITIVITY
from sgpu.study.benchmark import Cell

VERSION = 2
# What is kept of each variant.
METRICS = ("auroc", "auarc", "auarc_20", "ece", "accuracy")
# What of the spectrum needs no fit, so that one sees what the classifier adds.
SPECTRAL = ("encoder", "n_answers")
# The classifier that answers for any number of answers, beside those that are fitted to each.
ANY_SIZE = "sgpu_any_size"
# Stands for all cells together in the table.
POOL = Cell(GLOBAL_KEY, GLOBAL_KEY)


def asks_for_sensitivity(run: Run) -> bool:
    """Whether the study varies anything, or has a second judge."""
    spec = run.study.sensitivity
    varied = spec.kernels or spec.encoders or spec.n_answers or spec.train_sizes
    transferred = any(donors(run, cell) for cell in run.study.cells())
    judged = any(run.study.judge_of(cell.dataset).agreement for cell in run.study.cells())
    return bool(varied) or transferred or judged


def donors(run: Run, cell: Cell) -> list[Cell]:
    """The cells whose classifiers are tried on this one: those of the same data set, its own among them.

    Empty where it is the only one, or the study has no classifier.
    """
    cells = [other for other in run.study.cells() if other.dataset == cell.dataset]
    return cells if len(cells) > 1 and LOCAL in run.study.methods else []


def swept_pool(run: Run) -> list[Cell]:
    """Return the cells on whose merged questions kernels are swept; none if they cannot be merged."""
    cells = run.study.cells() if run.study.sensitivity.kernels else []
    return cells if len(cells) > 1 and len({answers_per_question(run, cell) for cell in cells}) == 1 else []


def publish_sensitivity(run: Run, cells: Sequence[Cell]) -> list[Outcome]:
    """Publish the sensitivity table of every cell and of their pool; all fits due are one training job."""
    if not asks_for_sensitivity(run):
        return []
    contents = {cell: _content(run, cell) for cell in cells}
    if pool := swept_pool(run):
        contents[POOL] = _content_of_pool(run, pool)
    kept_tables = {
        cell: run.store.unchanged(SENSITIVITY.name, cell.partition(), fingerprint(content))
        for cell, content in contents.items()
    }
    began = time.perf_counter()
    varied = {
        cell: VariedPool(run, pool) if cell == POOL else VariedCell(run, cell)
        for cell, current in kept_tables.items()
        if current is None
    }
    fits = fit_tasks(run, [task for cell in varied.values() for task in cell.tasks()])
    outcomes = []
    for cell, current in kept_tables.items():
        if current is not None:
            outcomes.append(run.remember(Outcome("vary", current, reused=True)))
            continue
        table = pa.Table.from_pylist(list(varied[cell].rows(fits)), schema=SENSITIVITY.schema)
        manifest = {**contents[cell], "code_version": code_version()}
        key = fingerprint(contents[cell])
        published = run.store.write(SENSITIVITY, cell.partition(), table, key, manifest)
        # The fits are one job for all cells, so its time is that of all.
        elapsed = time.perf_counter() - began
        outcomes.append(run.remember(Outcome("vary", published, reused=False, seconds=elapsed)))
    return outcomes


def _content(run: Run, cell: Cell) -> dict[str, object]:
    study, spec = run.study, run.study.sensitivity_of(cell)
    others = [
        run.store.require("spectra", cell.partition(encoder=encoder_label(run, encoder)))
        for encoder in spec.encoders
    ]
    tables = [*others, run.store.require("predictions", cell.partition()), *second_labels(run, cell).values()]
    return {
        "stage": "vary",
        "stage_version": VERSION,
        "inputs": [
            *cell_inputs(run, cell).versions,
            *([t.table, t.partition.path, t.fingerprint] for t in tables),
        ],
        "settings": as_settings(spec),
        "classifier": study.classifier.of_one_fit(),
        "other_n": study.classifier.other_n,
        "sizes": study.classifier.sizes,
        "donors": {
            str(donor): fit.fit_id for donor in donors(run, cell) if (fit := fit_of(run, donor)) is not None
        },
        "evaluation": as_settings(study.evaluation),
        "seed": study.seed,
        **KERNELS.plugins(study.classifier.kernel, *spec.kernels),
    }


def _content_of_pool(run: Run, cells: Sequence[Cell]) -> dict[str, object]:
    study = run.study
    return {
        "stage": "vary",
        "stage_version": VERSION,
        "inputs": [version for cell in cells for version in cell_tables(run, cell).versions],
        "kernels": study.sensitivity.kernels,
        "classifier": study.classifier.of_one_fit(),
        "pool": study.classifier.pool,
        "evaluation": as_settings(study.evaluation),
        "seed": study.seed,
        **KERNELS.plugins(*study.sensitivity.kernels),
    }


@dataclass(frozen=True)
class Variant:
    """One fit, to the first ``limit`` training rows, and the rows that it is measured on.

    ``evaluated`` is the split of the latter. A variant of the pool is fitted to ``pooled``.
    """

    kind: str
    setting: str
    classifier: dict[str, Any]
    rows: LabelledSpectra
    limit: int | None = None
    evaluated: str = "test"
    pooled: TrainingRows | None = None

    @property
    def training(self) -> TrainingRows:
        """What it is fitted to."""
        if self.pooled is not None:
            return self.pooled
        chosen = np.flatnonzero(self.rows.trains)[: self.limit]
        return TrainingRows(self.rows.spectra[chosen], self.rows.label[chosen].astype(np.int64))


class Varied:
    """A cell, or the pool of all, with one setting after another varied: its fits, and rows of the table."""

    def __init__(
        self, run: Run, cell: Cell, variants: Iterable[Variant], provenance: Mapping[str, object]
    ) -> None:
        """``provenance`` is what every row says of where it comes from."""
        self._run, self._cell, self._provenance = run, cell, provenance
        self._variants = [v for v in variants if too_few(v.training.y) is None]

    def tasks(self) -> Iterator[FitTask]:
        """A fit for each variant; finished ones are kept as those of the cells are."""
        for variant in self._variants:
            yield classifier_task(self._run, self._fit_key(variant), variant.training, variant.classifier)

    def _fit_key(self, variant: Variant) -> str:
        key = fit_key(None, GLOBAL) if self._cell == POOL else fit_key(self._cell, LOCAL)
        return f"{key}/sensitivity/{variant.kind}-{variant.setting}"

    def rows(self, fits: Mapping[str, FitResult]) -> Iterator[dict[str, object]]:
        """Measure every variant; ``fits`` are those of `tasks` by their keys."""
        for variant in self._variants:
            fit = fits[self._fit_key(variant)]
            if fit.folder is None:
                self._run.notes.append(f"{self._cell}, {variant.kind} {variant.setting}: {fit.problem}")
                continue
            confidence = {GLOBAL if self._cell == POOL else LOCAL: variant.rows.predicted(fit.load())}
            forecasts: dict[str, Floats | None] = {**confidence}
            if variant.kind in SPECTRAL:
                confidence["largest_eigenvalue"] = largest_eigenvalue(variant.rows.spectra)
                confidence["spectral_entropy"] = -spectral_entropy(variant.rows.spectra)
                forecasts |= dict.fromkeys(("largest_eigenvalue", "spectral_entropy"))
            if variant.kind == "n_answers" and (any_size := self._of_any_size()):
                confidence[ANY_SIZE] = forecasts[ANY_SIZE] = variant.rows.predicted(any_size, size_free)
            # The metrics are of the rows called "test": for the choice of a kernel those of the validation
            # part.
            split = variant.rows.split
            if variant.evaluated != "test":
                split = np.where(split == variant.evaluated, "test", "not used")
            yield from self._measured(
                variant.kind,
                variant.setting,
                confidence,
                forecasts,
                variant.rows.label,
                split,
                n_train=len(variant.training.y),
                evaluated_on=variant.evaluated,
                fit=fit.fingerprint,
            )

    def _of_any_size(self) -> GPClassifier | None:
        """The cell's classifier for any number of answers, trained on several at once."""
        fit = fit_of(self._run, self._cell)
        if fit is None or fit.folder is None or not (fit.folder / SIZE_FREE).is_dir():
            return None
        return GPClassifier.load(fit.folder / SIZE_FREE)

    def _measured(
        self,
        kind: str,
        setting: str,
        confidence: Mapping[str, Floats],
        forecasts: Mapping[str, Floats | None],
        label: Floats,
        split: NDArray[np.str_],
        **record: object,
    ) -> Iterator[dict[str, object]]:
        """Rows of the table for one setting; ``record`` says of each what made it."""
        recorded = {**self._provenance, "varied": kind, "setting": setting, **record}
        settings = evaluation_settings(self._run, recorded)
        for row in evaluate_cell(confidence, forecasts, label, split, settings=settings):
            if row.metric in METRICS:
                yield {"kind": kind, "setting": setting, **asdict(row)}


class VariedCell(Varied):
    """One cell, whose questions are also put to other cells' classifiers and to other judges."""

    def __init__(self, run: Run, cell: Cell) -> None:
        self._inputs = cell_inputs(run, cell)
        frame = cell_frame(self._inputs)  # with all answers, so it is not kept
        self._rows = LabelledSpectra.of(frame, self._inputs.n)
        super().__init__(run, cell, self._requested(frame), provenance(run, cell, self._inputs))

    def rows(self, fits: Mapping[str, FitResult]) -> Iterator[dict[str, object]]:
        """Measure every variant, the classifiers of other models, and every method by other judges."""
        yield from super().rows(fits)
        yield from self._transferred()
        yield from self._rejudged()

    def _requested(self, frame: pl.DataFrame) -> Iterator[Variant]:
        """Every variant that the study asks for, whether or not it can be fitted."""
        spec, rows, n = self._run.study.sensitivity_of(self._cell), self._rows, self._inputs.n
        base = self._run.study.classifier.of_one_fit()
        # Inner validation, as in the paper: the choice of a kernel must not see the test questions.
        for kernel in spec.kernels:
            yield Variant("kernel", kernel, {**base, "kernel": kernel}, rows, evaluated="validation")
        if spec.encoders:
            for encoder in dict.fromkeys([self._run.study.encoder.name, *spec.encoders]):
                label = encoder_label(self._run, encoder)
                yield Variant("encoder", label, base, self._encoded(frame, label))
        if spec.n_answers:
            smaller = sorted({size for size in spec.n_answers if size < n})
            by_size = subset_spectra(self._inputs.spectra, frame["question_id"].to_list(), smaller)
            for size in smaller:
                yield Variant("n_answers", str(size), base, replace(rows, spectra=by_size[size]))
            yield Variant("n_answers", str(n), base, rows)
        if spec.train_sizes:
            whole = int(rows.trains.sum())
            # Smaller sizes are the first of the larger.
            for size in sorted({*(size for size in spec.train_sizes if size < whole), whole}):
                yield Variant("train_size", str(size), base, rows, limit=size)

    def _encoded(self, frame: pl.DataFrame, encoder: str) -> LabelledSpectra:
        published = self._run.store.require("spectra", self._cell.partition(encoder=encoder))
        encoded = rows_of(published, ["question_id", "status", "eigenvalues"]).filter(
            pl.col("status") == "ok"
        )
        values = eigenvalues(aligned(frame["question_id"], encoded), self._inputs.n)
        return replace(self._rows, spectra=values)

    def _transferred(self) -> Iterator[dict[str, object]]:
        """The classifiers of other models on the test questions; no answer of this model trained them."""
        for donor in donors(self._run, self._cell):
            fit = fit_of(self._run, donor)
            if fit is None or fit.folder is None or cell_inputs(self._run, donor).n != self._inputs.n:
                continue
            scores = {LOCAL: self._rows.predicted(GPClassifier.load(fit.folder))}
            label, split = self._rows.label, self._rows.split
            yield from self._measured("trained_on", donor.model, scores, scores, label, split, fit=fit.fit_id)

    def _rejudged(self) -> Iterator[dict[str, object]]:
        """Every method under the labels of every judge, on the test questions that all judges have seen.

        The maps of scores to probabilities stay those of the study's judge: other labels are for tests only.
        """
        others = second_labels(self._run, self._cell)
        scored = columns_of(rows_of(self._run.store.require("predictions", self._cell.partition())))
        if not others or not scored.confidence:
            return
        frames = {
            name: aligned(
                scored.question_ids, rows_of(table, ["question_id", "label"]).with_columns(asked=pl.lit(True))
            )
            for name, table in others.items()
        }
        shared = np.logical_and.reduce([frame["asked"].is_not_null().to_numpy() for frame in frames.values()])
        test = scored.split == "test"
        split = np.where(test & ~shared, "not seen by all", scored.split)
        judged = {self._inputs.judge: scored.label}
        judged |= {name: np.where(test, label_array(frame), scored.label) for name, frame in frames.items()}
        for judge, label in judged.items():
            yield from self._measured(
                "judge", judge, scored.confidence, scored.probability, label, split, judge=judge
            )


class VariedPool(Varied):
    """The questions of all cells together, on which the paper chooses the kernel of Global-SGPU."""

    def __init__(self, run: Run, cells: Sequence[Cell]) -> None:
        inputs = [cell_inputs(run, cell) for cell in cells]
        n, parts = inputs[0].n, [LabelledSpectra.of(cell_frame(cell), cell.n) for cell in inputs]
        own = [Training({n: p.spectra[p.trains]}, n, p.label[p.trains].astype(np.int64)) for p in parts]
        training = pooled(own, run.study.classifier.pool).own()
        rows = LabelledSpectra(
            np.concatenate([p.spectra for p in parts]),
            np.concatenate([p.label for p in parts]),
            np.concatenate([p.split for p in parts]),
        )
        base = run.study.classifier.of_one_fit()
        variants = [
            Variant("global_kernel", kernel, {**base, "kernel": kernel}, rows, None, "validation", training)
            for kernel in run.study.sensitivity.kernels
        ]
        provenance = {
            "cells": [str(cell) for cell in cells],
            "judge": sorted({cell.judge for cell in inputs}),
            "encoder": inputs[0].encoder,
            "n_answers": n,
            "seed": run.study.seed,
            "code_version": code_version(),
        }
        super().__init__(run, POOL, variants, provenance)
