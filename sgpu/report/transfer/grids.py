"""Matrices of the report: a value with its interval for each row and column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sgpu.report.table import COLUMNS, ReportTable, Row, Score
from sgpu.transfer.designs import Gap
from sgpu.transfer.measure import Forecast

IN_DOMAIN, TRAINING_FREE = "in_domain", "training_free"


@dataclass(frozen=True)
class TransferData:
    """``metrics``, ``comparisons``, ``curve``, ``calibration`` have the columns of `sgpu.transfer.measure`.

    ``designs`` are those asked for, in order. ``sources`` are (cell, modality, rows by split, label rate).
    """

    study: Mapping[str, Any]
    run_info: Mapping[str, Any]
    designs: Sequence[str]
    sources: Sequence[tuple[str, str, Counter[str], float | None]]
    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    curve: pl.DataFrame
    calibration: pl.DataFrame
    fits: Sequence[Forecast] = ()
    gaps: Sequence[Gap] = ()
    notes: Sequence[str] = ()


SOURCE = "trained on"
MEASURES = {measure.name: measure for measure in COLUMNS}
# By metric: the value of knowing nothing and the best one.
SCALES = {"auroc": (0.5, 1.0), "auarc": (0.0, 1.0), "ece": (0.5, 0.0)}
MATRICES = {"model_matrix": ("model", "dataset"), "dataset_matrix": ("dataset", "model")}


def grids(data: TransferData) -> list[ReportTable]:
    """Every matrix of the study in every measure: those of single sources, then all designs by target."""
    made = []
    for metric in SCALES:
        for design in data.designs:
            if design in MATRICES:
                made += list(_matrices(data, design, metric))
        made.append(_by_target(data, metric))
    return made


def _matrices(data: TransferData, design: str, metric: str) -> Iterator[ReportTable]:
    """One matrix a data set (or a model): trained on the row, tested on the column."""
    varied, fixed = MATRICES[design]
    measured = data.metrics.filter(pl.col("metric") == metric)
    for name in measured[fixed].unique(maintain_order=True):
        own = measured.filter(pl.col(fixed) == name)
        tried = own.filter(pl.col("design").is_in([IN_DOMAIN, design])).with_columns(
            pl.when(pl.col("design") == IN_DOMAIN)
            .then(varied)
            .otherwise(pl.col("method").str.strip_prefix(f"from {varied} "))
            .alias("row")
        )
        names = own[varied].unique(maintain_order=True).to_list()
        if len(names) > 1:
            yield _grid(
                f"{design}-{name}-{metric}",
                f"{MEASURES[metric].title}, {name}: trained on the row, tested on the column",
                "The diagonal is trained and tested inside the cell.",
                tried.rename({"row": SOURCE, varied: "tested on"}), metric, SOURCE, "tested on", names, names,
            )  # fmt: skip


def _by_target(data: TransferData, metric: str) -> ReportTable:
    """The designs that pool sources, the in-domain classifier and the training-free methods, by target."""
    measured = data.metrics.filter((pl.col("metric") == metric) & ~pl.col("design").is_in(list(MATRICES)))
    measured = measured.with_columns(
        pl.format("{}/{}", "model", "dataset").alias("target"),
        pl.when(pl.col("design").is_in([IN_DOMAIN, TRAINING_FREE]))
        .then("method").otherwise("design").alias("method"),
    )  # fmt: skip
    seen = measured["method"].unique(maintain_order=True).to_list()
    free = sorted(measured.filter(pl.col("design") == TRAINING_FREE)["method"].unique())
    rows = [name for name in (IN_DOMAIN, *data.designs) if name in seen] + free
    return _grid(
        f"targets-{metric}",
        f"{MEASURES[metric].title} of every target",
        "Pooled classifiers saw no row that their design leaves out; in_domain is trained on the target's "
        "own training questions; the others are not trained.",
        measured, metric, "method", "target", rows, measured["target"].unique(maintain_order=True).to_list(),
    )  # fmt: skip


def _grid(
    name: str, title: str, caption: str, frame: pl.DataFrame, metric: str, down: str, across: str,
    rows: Sequence[str], columns: Sequence[str],
) -> ReportTable:  # fmt: skip
    """Lay out ``frame`` by its columns ``down`` and ``across``; what it lacks was not measured."""
    found = {
        (row, column): Score(*numbers)
        for row, column, *numbers in frame.select(down, across, "value", "lo", "hi").iter_rows()
    }
    ordered = [(row, column) for row in rows for column in columns if (row, column) in found]
    lines = [(*at, found[at].value, found[at].lo, found[at].hi) for at in ordered]
    schema = {down: pl.String, across: pl.String, **dict.fromkeys(("value", "lo", "hi"), pl.Float64)}
    return ReportTable(
        name, title, caption, (down,), tuple(replace(MEASURES[metric], group=column) for column in columns),
        tuple(Row((row,), tuple(found.get((row, c), Score(absent="")) for c in columns)) for row in rows),
        pl.DataFrame(lines, schema, orient="row"), beneath="interval",
    )  # fmt: skip
