"""The methods of a cell as rows to be read, and all cells beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sgpu.report.study.data import ReportData, cell_name
from sgpu.report.table import COLUMNS, Measure, ReportTable, Row, Score, mark_rows, mark_scores


@dataclass(frozen=True)
class MethodRow(Row):
    """The scores of one method in one cell, in the order of COLUMNS; ``why`` says what is unavailable.

    ``against`` is its AUROC minus that of the reference, with DeLong's p-value after Holm's correction.
    """

    n: int | None = None
    n_missing: int | None = None
    why: str = ""
    against: Score | None = None

    @property
    def method(self) -> str:
        return self.names[0]

    @property
    def auroc(self) -> Score:
        return self.scores[0]


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
    board = []
    for method, metrics in rows.items():
        counted = metrics.get("auroc") or next(iter(metrics.values()))
        scores = tuple(_score(metrics.get(column.name)) for column in COLUMNS)
        known = {"n": counted["n"], "n_missing": counted["n_missing"], "against": against.get(method)}
        board.append(MethodRow((method,), scores, **known))
    board = sorted(mark_rows(board, COLUMNS), key=lambda row: _sort_key(row.auroc, row.method))
    absent = sorted(
        (entry["method"], entry["why"])
        for entry in data.unavailable
        if entry["cell"] == cell_name(model, dataset) and entry["method"] not in rows
    )
    return board + [MethodRow((method,), (), why=why) for method, why in absent]


def _sort_key(score: Score, name: str) -> tuple[bool, float, str]:
    """What puts the highest value first, those undefined last, and then goes by name."""
    return score.value is None, -(score.value or 0.0), name


def further_metrics(data: ReportData, model: str, dataset: str, board: Sequence[MethodRow]) -> list[Row]:
    """Every metric that is not in COLUMNS, by name, with one score for each row of ``board`` that has any."""
    rows = _rows(data, model, dataset)
    names = sorted({metric for metrics in rows.values() for metric in metrics} - {c.name for c in COLUMNS})
    computed = [rows[row.method] for row in board if row.scores]
    return [Row((name,), tuple(_score(metrics.get(name)) for metrics in computed)) for name in names]


def _against(data: ReportData, model: str, dataset: str) -> dict[str, Score]:
    """How each method's AUROC differs from that of the primary one, where both are defined."""
    rows = data.comparisons.filter(
        pl.col("difference").is_not_null(),
        model=model, dataset=dataset, reference=data.primary, metric="auroc",
    )  # fmt: skip
    shown = rows.select("method", "difference", "lo", "hi", "p_holm").iter_rows()
    return {method: Score(difference, lo, hi, p=p) for method, difference, lo, hi, p in shown}


def _score(row: Mapping[str, Any] | None) -> Score:
    return Score(absent="not computed") if row is None else Score(row["value"], row["lo"], row["hi"])


def overview(boards: Mapping[tuple[str, str], Sequence[MethodRow]]) -> ReportTable:
    """Return the AUROC of every method (a column each, the highest mean first) in every cell.

    The last row holds the means. A method that is undefined in some cell has none: it would be over other
    cells than the rest.
    """
    unavailable, uncomputed = Score(absent="not available"), Score(absent="not computed")
    areas = [{row.method: row.auroc if row.scores else unavailable for row in b} for b in boards.values()]
    means = {
        method: mean_score([scores.get(method, uncomputed) for scores in areas])
        for method in set().union(*areas)
    }
    methods = sorted(means, key=lambda method: _sort_key(means[method], method))
    names = [*boards, ("Mean", f"of {len(boards)} cells")]
    rows = tuple(
        Row(name, tuple(mark_scores([scores.get(method, uncomputed) for method in methods], True)))
        for name, scores in zip(names, [*areas, means], strict=True)
    )
    caption = "AUROC of every method in every cell, with 95 % intervals."
    columns = tuple(Measure(method, method, True) for method in methods)
    return ReportTable("overview", "Overview", caption, ("model", "dataset"), columns, rows)


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean, or in how many of the cells there is a value if some have none."""
    values = [score.value for score in scores if score.value is not None]
    if len(values) < len(scores):
        return Score(absent=f"in {len(values)} of {len(scores)} cells")
    return Score(sum(values) / len(values))
