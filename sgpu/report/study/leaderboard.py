"""Metrics as tables to be read: one row a method, the best and the second marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from sgpu.report.look.numbers import UNDEFINED, dash, decimals, format_signed, interval, is_finite
from sgpu.report.study.data import ReportData, cell_name

Mark = Literal["best", "second", ""]
_MARKED: Mapping[Mark, str] = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}


@dataclass(frozen=True)
class Measure:
    """A column of numbers; ``higher_is_better`` is None where neither is. ``decimals`` 0 are counts."""

    name: str
    title: str
    higher_is_better: bool | None = None
    decimals: int = 3

    def text(self, value: float) -> str:
        return f"{value:.0f}" if self.decimals == 0 else decimals(value)

    def shown(self, value: float | None) -> str:
        """As `text`, with a dash where there is none."""
        return dash(value, self.text)

    def signed(self, value: float) -> str:
        """A difference with its sign."""
        sign = "+" if round(value, self.decimals) > 0 else ""
        return sign + self.text(value)


AUROC, ECE = Measure("auroc", "AUROC", True), Measure("ece", "ECE", False)
# AUARC is the exact area everywhere. The paper's numbers fit the sum of 20 rectangles, which is what stands
# beside them.
COLUMNS = (AUROC, Measure("auarc", "AUARC", True), ECE, Measure("brier", "Brier", False))
PAPER_COLUMNS = (AUROC, Measure("auarc_20", "AUARC-20", True), ECE)


@dataclass(frozen=True)
class Score:
    """One value as shown; ``value`` is None where it is undefined or was not computed."""

    text: str
    interval: str = ""
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    mark: Mark = ""

    @classmethod
    def of(
        cls,
        value: float | None,
        lo: float | None,
        hi: float | None,
        write: Callable[[float], str] = decimals,
    ) -> Score:
        """A value and its interval as shown; "undefined" where there is no finite value."""
        return cls(write(value), interval(lo, hi), value, lo, hi) if is_finite(value) else cls(UNDEFINED)

    def latex(self) -> str:
        """The best of a column bold, the second underlined; dashes where there is no value."""
        return "--" if self.value is None else _MARKED[self.mark] % self.text.replace("−", "-")


SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Against:
    """The AUROC of a method minus that of the reference; ``p`` is DeLong's, with Holm's correction."""

    difference: str
    interval: str
    p: float | None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < SIGNIFICANT


@dataclass(frozen=True)
class MethodRow:
    """The scores of one method in one cell, in the order of COLUMNS; ``why`` says what is unavailable."""

    method: str
    scores: tuple[Score, ...]
    n: int | None = None
    n_missing: int | None = None
    why: str = ""
    against: Against | None = None

    @property
    def auroc(self) -> Score:
        return self.scores[0]


def marked(scores: Sequence[Score], higher_is_better: bool | None) -> list[Score]:
    """Mark the best and the second of a column, as the reader sees it.

    Values that print alike are tied: all of a tie for the first place are best, and then there is no
    second. Nothing is marked where no two values differ, nor where neither is better (None).
    """
    shown = [None if score.value is None else round(score.value, 3) for score in scores]
    ranked = sorted((value for value in shown if value is not None), reverse=bool(higher_is_better))
    if higher_is_better is None or len(ranked) < 2 or ranked[0] == ranked[-1]:
        return list(scores)
    marks: dict[float | None, Mark] = {ranked[1]: "second", ranked[0]: "best"}  # of a tie, "best" is kept
    return [replace(score, mark=marks.get(value, "")) for score, value in zip(scores, shown, strict=True)]


def marked_rows(rows: Sequence[Sequence[Score]], measures: Sequence[Measure]) -> list[tuple[Score, ...]]:
    """Rows of a score for each measure, with the best and the second of every column marked."""
    columns = [
        marked([row[i] for row in rows], measure.higher_is_better) for i, measure in enumerate(measures)
    ]
    return list(zip(*columns, strict=True))


Rows = dict[str, dict[str, dict[str, Any]]]


def _rows(data: ReportData, model: str, dataset: str) -> Rows:
    """The metrics of one cell: method -> metric -> row, metrics by name; of several settings the last."""
    rows: Rows = {}
    for row in data.metrics.filter(model=model, dataset=dataset).sort("metric", "settings").to_dicts():
        rows.setdefault(row["method"], {})[row["metric"]] = row
    return rows


def leaderboard(data: ReportData, model: str, dataset: str) -> list[MethodRow]:
    """The methods of one cell, highest AUROC first, then those undefined, then those unavailable."""
    rows, against = _rows(data, model, dataset), _against(data, model, dataset)
    shown = [[_score(metrics.get(column.name)) for column in COLUMNS] for metrics in rows.values()]
    board = []
    for (method, metrics), scores in zip(rows.items(), marked_rows(shown, COLUMNS), strict=True):
        counted = metrics.get("auroc") or next(iter(metrics.values()))
        board.append(MethodRow(method, scores, counted["n"], counted["n_missing"], "", against.get(method)))
    board.sort(key=lambda row: _sort_key(row.auroc, row.method))
    absent = sorted(
        (entry["method"], entry["why"])
        for entry in data.unavailable
        if entry["cell"] == cell_name(model, dataset) and entry["method"] not in rows
    )
    return board + [MethodRow(method, (), why=why) for method, why in absent]


def _sort_key(score: Score, name: str) -> tuple[bool, float, str]:
    """What puts the highest value first, those undefined last, and then goes by name."""
    return score.value is None, -(score.value or 0.0), name


def further_metrics(
    data: ReportData, model: str, dataset: str, board: Sequence[MethodRow]
) -> list[tuple[str, list[Score]]]:
    """Every metric that is not in COLUMNS, by name, with one score for each row of ``board`` that has any."""
    rows = _rows(data, model, dataset)
    names = sorted({metric for metrics in rows.values() for metric in metrics} - {c.name for c in COLUMNS})
    computed = [rows[row.method] for row in board if row.scores]
    return [(name, [_score(metrics.get(name)) for metrics in computed]) for name in names]


def _against(data: ReportData, model: str, dataset: str) -> dict[str, Against]:
    """How each method's AUROC differs from that of the primary one, where both are defined."""
    rows = data.comparisons.filter(
        pl.col("difference").is_not_null(),
        model=model, dataset=dataset, reference=data.primary, metric="auroc",
    )  # fmt: skip
    return {
        row["method"]: Against(
            format_signed(row["difference"]), interval(row["lo"], row["hi"]), row["p_holm"]
        )
        for row in rows.iter_rows(named=True)
    }


def _score(row: Mapping[str, Any] | None) -> Score:
    return Score("not computed") if row is None else Score.of(row["value"], row["lo"], row["hi"])


@dataclass(frozen=True)
class OverviewRow:
    """The AUROC of every method in one cell, or its mean over the cells."""

    title: str
    remark: str
    anchor: str
    scores: tuple[Score, ...]


def overview(boards: dict[tuple[str, str], list[MethodRow]]) -> tuple[list[str], list[OverviewRow]]:
    """Methods, and their AUROC in every cell with a last row of means.

    A method that is undefined in some cell has no mean: it would be over other cells than the rest.
    """
    areas = [
        {row.method: row.auroc if row.scores else Score("not available") for row in board}
        for board in boards.values()
    ]
    means = {
        method: mean_score([scores.get(method, Score("not computed")) for scores in areas])
        for method in set().union(*areas)
    }
    methods = sorted(means, key=lambda method: _sort_key(means[method], method))
    rows = []
    for number, ((model, dataset), scores) in enumerate(zip(boards, areas, strict=True), start=1):
        shown = marked([scores.get(method, Score("not computed")) for method in methods], True)
        rows.append(OverviewRow(model, dataset, f"cell-{number}", tuple(shown)))
    last = marked([means[method] for method in methods], True)
    return methods, [*rows, OverviewRow("Mean", f"of {len(boards)} cells", "", tuple(last))]


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean, or in how many of the cells there is a value if some have none."""
    values = [score.value for score in scores if score.value is not None]
    if len(values) < len(scores):
        return Score(f"in {len(values)} of {len(scores)} cells")
    mean = sum(values) / len(values)
    return Score(decimals(mean), value=mean)
