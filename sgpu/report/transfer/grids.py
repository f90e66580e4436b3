"""Matrices of the report: a value with its interval for each row and column, as figure, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import polars as pl

from sgpu.report.look.latex import booktabs, escape
from sgpu.report.study.leaderboard import COLUMNS, Score
from sgpu.transfer.designs import Gap

IN_DOMAIN, TRAINING_FREE = "in_domain", "training_free"


class TransferCellRow(TypedDict):
    """A cell of the study and what it has."""

    cell: str
    modality: str
    n_train: int
    n_validation: int
    n_test: int
    label_rate: float | None


class FitRow(TypedDict):
    """What one classifier was made from."""

    target: str
    method: str
    sources: str
    chosen: str
    n_train: int
    n_selection: int
    left_out: int


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
    fits: Sequence[FitRow] = ()
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
            {self.row_title: row, self.column_title: column, "value": e.value, "lo": e.lo, "hi": e.hi}
            for row in self.rows
            for column in self.columns
            if (e := self.entries.get((row, column)))
        ]
        schema = {self.row_title: pl.String, self.column_title: pl.String}
        return pl.DataFrame(lines, schema={**schema, **dict.fromkeys(("value", "lo", "hi"), pl.Float64)})

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
    found = []
    for metric in SCALES:
        for design in data.designs:
            if design in MATRICES:
                found += list(_matrices(data, design, metric))
        found.append(_by_target(data, metric))
    return found


def _matrices(data: TransferData, design: str, metric: str) -> Iterator[Grid]:
    """One matrix a data set (or a model): trained on the row, tested on the column."""
    varied, fixed = MATRICES[design]
    title = TITLES[metric]
    known = data.metrics.filter(pl.col("metric") == metric)
    for name in known[fixed].unique(maintain_order=True):
        own = known.filter(pl.col(fixed) == name)
        entries = {}
        for row in own.iter_rows(named=True):
            if row["design"] == IN_DOMAIN:
                entries[row[varied], row[varied]] = _score(row)
            elif row["design"] == design:
                entries[row["method"].removeprefix(f"from {varied} "), row[varied]] = _score(row)
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
    known = data.metrics.filter((pl.col("metric") == metric) & ~pl.col("design").is_in(list(MATRICES)))
    known = known.with_columns(
        pl.format("{}/{}", "model", "dataset").alias("target"),
        pl.when(pl.col("design").is_in([IN_DOMAIN, TRAINING_FREE]))
        .then("method").otherwise("design").alias("row"),
    )  # fmt: skip
    entries = {(row["row"], row["target"]): _score(row) for row in known.iter_rows(named=True)}
    seen = known["row"].unique(maintain_order=True).to_list()
    free = sorted(known.filter(pl.col("design") == TRAINING_FREE)["row"].unique())
    rows = [name for name in (IN_DOMAIN, *data.designs) if name in seen] + free
    return Grid(
        f"targets-{metric}",
        f"{TITLES[metric]} of every target",
        "Pooled classifiers saw no row that their design leaves out; in_domain is trained on the target's "
        "own training questions; the others are not trained.",
        metric, "method", "target", tuple(rows), tuple(known["target"].unique(maintain_order=True)), entries,
    )  # fmt: skip


def _score(row: Mapping[str, Any]) -> Score:
    return Score.of(row["value"], row["lo"], row["hi"])
