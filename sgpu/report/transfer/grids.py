"""Matrices of the report: a value with its interval for each row and column, as figure, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import polars as pl

from sgpu.report.look.latex import booktabs, escape
from sgpu.report.study.leaderboard import COLUMNS, Score
from sgpu.transfer.designs import Gap
from sgpu.transfer.measure import Forecast

IN_DOMAIN, TRAINING_FREE = "in_domain", "training_free"


class TransferCellRow(TypedDict):
    """A cell of the study and what it has."""

    cell: str
    modality: str
    n_train: int
    n_validation: int
    n_test: int
    label_rate: float | None


@dataclass(frozen=True)
class TransferData:
    """``metrics``, ``comparisons``, ``curve``, ``calibration`` have the columns of `sgpu.transfer.measure`.

    ``designs`` are those asked for, in order.
    """

    study: Mapping[str, Any]
    run_info: Mapping[str, Any]
    designs: Sequence[str]
    sources: Sequence[TransferCellRow]
    metrics: pl.DataFrame
    comparisons: pl.DataFrame
    curve: pl.DataFrame
    calibration: pl.DataFrame
    fits: Sequence[Forecast] = ()
    gaps: Sequence[Gap] = ()
    notes: Sequence[str] = ()


SOURCE = "trained on"
TITLES = {measure.name: measure.title for measure in COLUMNS}
# By metric: the value of knowing nothing and the best one.
SCALES = {"auroc": (0.5, 1.0), "auarc": (0.0, 1.0), "ece": (0.5, 0.0)}
MATRICES = {"model_matrix": ("model", "dataset"), "dataset_matrix": ("dataset", "model")}


@dataclass(frozen=True)
class Grid:
    """``entries`` by (row, column); what is not there was not asked or cannot be had."""

    name: str
    title: str
    caption: str
    metric: str
    row_title: str
    column_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[str, str], Score]

    def frame(self) -> pl.DataFrame:
        """One line an entry."""
        lines = [
            (row, column, entry.value, entry.lo, entry.hi)
            for row in self.rows
            for column in self.columns
            if (entry := self.entries.get((row, column)))
        ]
        names = dict.fromkeys((self.row_title, self.column_title), pl.String)
        numbers = dict.fromkeys(("value", "lo", "hi"), pl.Float64)
        return pl.DataFrame(lines, {**names, **numbers}, orient="row")

    def latex(self) -> str:
        """A ``table`` environment; intervals small beneath the values."""
        body = [[escape(row), *(self._cell(row, column) for column in self.columns)] for row in self.rows]
        heads = [escape(self.row_title), *map(escape, self.columns)]
        return booktabs(self.name, escape(f"{self.title}. {self.caption}"), heads, [("", body)])

    def _cell(self, row: str, column: str) -> str:
        entry = self.entries.get((row, column))
        if entry is None or entry.value is None:
            return "--"
        beneath = rf" {{\scriptsize {entry.interval}}}" if entry.interval else ""
        return (entry.text + beneath).replace("−", "$-$")


def grids(data: TransferData) -> list[Grid]:
    """Every matrix of the study in every measure: those of single sources, then all designs by target."""
    made = []
    for metric in SCALES:
        for design in data.designs:
            if design in MATRICES:
                made += list(_matrices(data, design, metric))
        made.append(_by_target(data, metric))
    return made


def _matrices(data: TransferData, design: str, metric: str) -> Iterator[Grid]:
    """One matrix a data set (or a model): trained on the row, tested on the column."""
    varied, fixed = MATRICES[design]
    title = TITLES[metric]
    measured = data.metrics.filter(pl.col("metric") == metric)
    for name in measured[fixed].unique(maintain_order=True):
        own = measured.filter(pl.col(fixed) == name)
        tried = own.filter(pl.col("design").is_in([IN_DOMAIN, design])).with_columns(
            pl.when(pl.col("design") == IN_DOMAIN)
            .then(varied)
            .otherwise(pl.col("method").str.strip_prefix(f"from {varied} "))
            .alias("row")
        )
        entries = _entries(tried, varied)
        names = tuple(own[varied].unique(maintain_order=True))
        if len(names) > 1:
            yield Grid(
                f"{design}-{name}-{metric}",
                f"{title}, {name}: trained on the row, tested on the column",
                "The diagonal is trained and tested inside the cell.",
                metric, SOURCE, "tested on", names, names, entries,
            )  # fmt: skip


def _by_target(data: TransferData, metric: str) -> Grid:
    """The designs that pool sources, the in-domain classifier and the training-free methods, by target."""
    measured = data.metrics.filter((pl.col("metric") == metric) & ~pl.col("design").is_in(list(MATRICES)))
    measured = measured.with_columns(
        pl.format("{}/{}", "model", "dataset").alias("target"),
        pl.when(pl.col("design").is_in([IN_DOMAIN, TRAINING_FREE]))
        .then("method").otherwise("design").alias("row"),
    )  # fmt: skip
    seen = measured["row"].unique(maintain_order=True).to_list()
    free = sorted(measured.filter(pl.col("design") == TRAINING_FREE)["row"].unique())
    rows = [name for name in (IN_DOMAIN, *data.designs) if name in seen] + free
    return Grid(
        f"targets-{metric}",
        f"{TITLES[metric]} of every target",
        "Pooled classifiers saw no row that their design leaves out; in_domain is trained on the target's "
        "own training questions; the others are not trained.",
        metric, "method", "target", tuple(rows), tuple(measured["target"].unique(maintain_order=True)),
        _entries(measured, "target"),
    )  # fmt: skip


def _entries(frame: pl.DataFrame, column: str) -> dict[tuple[str, str], Score]:
    rows = frame.select("row", column, "value", "lo", "hi").iter_rows()
    return {(row, target): Score.of(*numbers) for row, target, *numbers in rows}
