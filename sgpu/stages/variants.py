"""The classifiers that a sensitivity study refits: one setting varied, on the same stored answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.evaluation.cell import MetricRow
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import cell_frame, cell_inputs, eigenvalues, labels
from sgpu.stages.encode import encoder_label
from sgpu.stages.fit_rows import MIN_ROWS
from sgpu.stages.subsets import subset_spectra
from sgpu.storage.store import Partition
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
    rows: Rows
    evaluated: str = "test"

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.setting}"


@dataclass(frozen=True)
class Rows:
    """All questions of a cell with one kind of spectrum; NaN where a label or a spectrum is missing."""

    spectra: Floats  # (Q, N)
    label: Floats  # (Q,)
    split: NDArray[np.str_]  # (Q,)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(Q,) whether a question has a spectrum."""
        return np.asarray(~np.isnan(self.spectra).any(axis=1))

    def training(self) -> tuple[Floats, NDArray[np.int64]]:
        """Spectra and labels of the training questions that have both, in the order of the split."""
        chosen = (self.split == "train") & ~np.isnan(self.label) & self.known
        return self.spectra[chosen], self.label[chosen].astype(np.int64)


def kept(kind: str, setting: str, found: Iterable[MetricRow]) -> list[dict[str, object]]:
    """Rows of the sensitivity table."""
    return [{"kind": kind, "setting": setting, **asdict(row)} for row in found if row.metric in METRICS]


def variants(run: Run, cell: Cell) -> Iterator[Variant]:
    """Every variant that the study asks for and that the cell can have."""
    spec, inputs = run.study.sensitivity, cell_inputs(run, cell)
    frame = cell_frame(inputs)
    rows = Rows(eigenvalues(frame, inputs.n), labels(frame), frame["split"].to_numpy().astype(str))
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
        whole = len(rows.training()[1])
        for size in sorted({*(size for size in spec.train_sizes if size < whole), whole}):
            yield from _variant("train_size", str(size), base, rows, limit=size)


def _variant(
    kind: str,
    setting: str,
    classifier: dict[str, Any],
    rows: Rows,
    *,
    limit: int | None = None,
    evaluated: str = "test",
) -> Iterator[Variant]:
    """The variant, unless its training rows cannot be fitted; smaller sizes are the first of the larger."""
    spectra, label = rows.training()
    spectra, label = spectra[:limit], label[:limit]
    if len(label) >= MIN_ROWS and len(np.unique(label)) == 2:
        yield Variant(kind, setting, classifier, spectra, label, rows, evaluated)


def _encoded(run: Run, cell: Cell, rows: Rows, frame: pl.DataFrame, encoder: str) -> Rows:
    partition = Partition.of(model=cell.model, dataset=cell.dataset, encoder=encoder_label(run, encoder))
    published = run.store.require("spectra", partition)
    found = pl.DataFrame(pl.from_arrow(published.read(["question_id", "status", "eigenvalues"])))
    aligned = frame.select("question_id").join(
        found.filter(pl.col("status") == "ok"), on="question_id", how="left", maintain_order="left"
    )
    return replace(rows, spectra=eigenvalues(aligned, rows.spectra.shape[1]))
