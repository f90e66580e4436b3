"""The classifiers that a sensitivity study refits: one setting varied, on the same stored answers.

And every method under the labels of every judge, for which nothing is sampled, embedded or fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.evaluation.cell import evaluate_cell
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import (
    LabelledSpectra,
    aligned,
    cell_frame,
    cell_inputs,
    eigenvalues,
    labels,
    rows_of,
    subset_spectra,
)
from sgpu.stages.encode import encoder_label
from sgpu.stages.fit_rows import MIN_ROWS
from sgpu.stages.judge import second_labels
from sgpu.stages.measure import columns_of, evaluation_settings, provenance
from sgpu.study.benchmark import Cell

Floats = NDArray[np.float64]
# What is kept of each variant.
METRICS = ("auroc", "auarc", "auarc_20", "ece", "accuracy")


@dataclass(frozen=True)
class Variant:
    """One fit and the rows that it is measured on; ``evaluated`` is their split."""

    kind: str
    setting: str
    classifier: dict[str, Any]
    spectra: Floats  # (M, N), training
    label: NDArray[np.int64]  # (M,)
    rows: LabelledSpectra
    evaluated: str = "test"

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.setting}"


def varied_rows(
    run: Run,
    base: Mapping[str, object],
    kind: str,
    setting: str,
    confidence: Mapping[str, Floats],
    forecasts: Mapping[str, Floats | None],
    label: Floats,
    split: NDArray[np.str_],
    **record: object,
) -> list[dict[str, object]]:
    """Rows of the sensitivity table for one setting; ``base`` and ``record`` say of each what made it."""
    settings = evaluation_settings(run, {**base, "varied": kind, "setting": setting, **record})
    measured = evaluate_cell(confidence, forecasts, label, split, settings=settings)
    return [{"kind": kind, "setting": setting, **asdict(row)} for row in measured if row.metric in METRICS]


def variants(run: Run, cell: Cell) -> Iterator[Variant]:
    """Every variant that the study asks for and that the cell can have."""
    spec, inputs = run.study.sensitivity, cell_inputs(run, cell)
    frame = cell_frame(inputs)
    rows = LabelledSpectra.of(frame, inputs.n)
    base = run.study.classifier.of_one_fit()
    # Inner validation, as in the paper: the choice of a kernel must not see the test questions.
    for kernel in spec.kernels:
        yield from _variant("kernel", kernel, {**base, "kernel": kernel}, rows, evaluated="validation")
    if spec.encoders:
        for encoder in dict.fromkeys([run.study.encoder.name, *spec.encoders]):
            yield from _variant(
                "encoder", encoder_label(run, encoder), base, _encoded(run, cell, rows, frame, encoder)
            )
    if spec.n_answers:
        smaller = sorted({size for size in spec.n_answers if size < inputs.n})
        by_size = subset_spectra(inputs.spectra, frame["question_id"].to_list(), smaller)
        for n in smaller:
            yield from _variant("n_answers", str(n), base, replace(rows, spectra=by_size[n]))
        yield from _variant("n_answers", str(inputs.n), base, rows)
    if spec.train_sizes:
        whole = int(rows.trains.sum())
        for size in sorted({*(size for size in spec.train_sizes if size < whole), whole}):
            yield from _variant("train_size", str(size), base, rows, limit=size)


def _variant(
    kind: str,
    setting: str,
    classifier: dict[str, Any],
    rows: LabelledSpectra,
    *,
    limit: int | None = None,
    evaluated: str = "test",
) -> Iterator[Variant]:
    """The variant, unless its training rows cannot be fitted; smaller sizes are the first of the larger."""
    spectra, label = rows.spectra[rows.trains][:limit], rows.label[rows.trains][:limit].astype(np.int64)
    if len(label) >= MIN_ROWS and len(np.unique(label)) == 2:
        yield Variant(kind, setting, classifier, spectra, label, rows, evaluated)


def _encoded(
    run: Run, cell: Cell, rows: LabelledSpectra, frame: pl.DataFrame, encoder: str
) -> LabelledSpectra:
    published = run.store.require("spectra", cell.partition(encoder=encoder_label(run, encoder)))
    encoded = rows_of(published, ["question_id", "status", "eigenvalues"]).filter(pl.col("status") == "ok")
    return replace(rows, spectra=eigenvalues(aligned(frame["question_id"], encoded), rows.spectra.shape[1]))


def rejudged(run: Run, cell: Cell) -> list[dict[str, object]]:
    """Rows of the sensitivity table, on the test questions that all judges have seen.

    The maps of scores to probabilities stay those of the study's judge: other labels are for tests only.
    """
    others = second_labels(run, cell)
    said = columns_of(rows_of(run.store.require("predictions", cell.partition())))
    if not others or not said.confidence:
        return []
    seen = {
        name: aligned(
            said.question_ids, rows_of(table, ["question_id", "label"]).with_columns(asked=pl.lit(True))
        )
        for name, table in others.items()
    }
    shared = np.logical_and.reduce([frame["asked"].is_not_null().to_numpy() for frame in seen.values()])
    test = said.split == "test"
    split = np.where(test & ~shared, "not seen by all", said.split)
    inputs = cell_inputs(run, cell)
    base = provenance(run, cell, inputs)
    judged = {inputs.judge: said.label}
    judged |= {name: np.where(test, labels(frame), said.label) for name, frame in seen.items()}
    return [
        row
        for judge, label in judged.items()
        for row in varied_rows(
            run, base, "judge", judge, said.confidence, said.probability, label, split, judge=judge
        )
    ]
