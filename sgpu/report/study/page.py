"""Write a report: one self-contained page, in which model text is data, and the metrics as files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sgpu.evaluation.metrics import BINS
from sgpu.report.look import as_yaml, numbers, template
from sgpu.report.look.svg import Picture, save
from sgpu.report.study.cells import CellView, LabelCounts, answer_groups, cell_view
from sgpu.report.study.data import METRIC_COLUMNS, ReportData
from sgpu.report.study.figures import strokes
from sgpu.report.study.headline import describe_best_method, describe_rejected_rows, method_notes
from sgpu.report.study.leaderboard import overview
from sgpu.report.study.study_tables import table_views
from sgpu.report.table import COLUMNS, ReportTable

QUARANTINE_SHOWN = 50
GROUPS_SHOWN = 6  # groups of identical answers before the fold


def cell_views(data: ReportData) -> list[CellView]:
    """The sections of the page."""
    style = strokes(_methods(data), data.primary)
    return [
        cell_view(data, model, dataset, f"cell-{number}", style)
        for number, (model, dataset) in enumerate(data.cells(), start=1)
    ]


def _methods(data: ReportData) -> set[str]:
    methods = {*data.metrics["method"].to_list(), *data.predictions["method"].to_list()}
    return methods | {entry["method"] for entry in data.unavailable}


def render_study(
    data: ReportData,
    cells: Sequence[CellView] | None = None,
    tables: Sequence[tuple[ReportTable, Picture]] = (),
) -> str:
    """Render the whole page as one string of HTML without scripts or outside resources.

    ``cells`` are those of `cell_views`, made here if they are not given.
    """
    cells = cell_views(data) if cells is None else cells
    methods = _methods(data)
    notes = method_notes(methods)
    style = strokes(methods, data.primary)
    boards = {(cell.model, cell.dataset): cell.board for cell in cells}
    table = overview(boards) if len(boards) > 1 else None
    source_rows, rejected = data.source_rows()
    return template("page.html.j2", answer_groups=answer_groups).render(
        title=str(data.study.get("name", "study")),
        summary=describe_best_method(cells, table, notes) + describe_rejected_rows(source_rows, rejected),
        source_rows=source_rows,
        rejected=rejected,
        labels=LabelCounts.over(cells),
        ranked=(ranked := [row for cell in cells if cell.ranking for row in cell.ranking.questions]),
        undecided=sum(row.times <= row.n / 2 for row in ranked),
        cells=cells,
        overview=table,
        tables=tables,
        columns=COLUMNS,
        bins=BINS,
        notes=notes,
        style=style,
        primary=data.primary,
        data=data,
        spans={cell.anchor: _auroc_span(cell) for cell in cells},
        quarantine_shown=QUARANTINE_SHOWN,
        groups_shown=GROUPS_SHOWN,
        settings=as_yaml(data.study),
        run_info=_flat(data.run_info),
    )


def _auroc_span(cell: CellView) -> tuple[float, float]:
    """The range that the interval marks of a cell share: every AUROC, every interval, and one half."""
    scores = [row.auroc for row in cell.board if row.scores]
    ends = [end for score in scores for end in (score.value, score.lo, score.hi) if numbers.is_finite(end)]
    return min([0.5, *ends]), max([0.5, *ends, 0.501])


def _flat(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Run information as (name, text) lines; nested mappings become `name: key`."""
    lines = []
    for key, value in info.items():
        named = [(key, value)]
        if isinstance(value, Mapping):
            named = [(f"{key}: {name}", item) for name, item in sorted(value.items())]
        lines += [
            (name, item if isinstance(item, str) else json.dumps(item, default=str)) for name, item in named
        ]
    return lines


def build_report(out: Path, data: ReportData) -> Path:
    """Write ``out/report`` (page, tables), ``out/metrics.csv`` and ``out/metrics.parquet``; return the page.

    The same data give the same bytes, in whatever order their rows come. The page loads nothing and
    runs nothing: figures and styles are inside it and its content policy forbids the rest.
    """
    tables, cells = table_views(data), cell_views(data)
    page = out / "report" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    # Model output can hold half of a surrogate pair, which UTF-8 cannot: it is written as its escape.
    page.write_bytes(render_study(data, cells, tables).encode("utf-8", "backslashreplace"))
    (page.parent / "tables").mkdir(exist_ok=True)
    for table, picture in tables:
        table.write(page.parent / "tables")
        if picture.figure is not None:
            save(picture.figure, page.parent / "tables" / table.name)
    for cell in cells:
        folder = page.parent / "figures" / cell.model / cell.dataset
        folder.mkdir(parents=True, exist_ok=True)
        for name, plot in cell.plots.items():
            if plot.figure is not None:
                save(plot.figure, folder / name)
    metrics = metrics_table(data.metrics)
    metrics.write_csv(out / "metrics.csv")
    metrics.write_parquet(out / "metrics.parquet")
    return page


def metrics_table(metrics: pl.DataFrame) -> pl.DataFrame:
    """METRIC_COLUMNS in key order; an undefined number is null, never NaN."""
    floats = pl.col("value", "lo", "hi").cast(pl.Float64).fill_nan(None)
    counts = pl.col("n", "n_missing").cast(pl.Int64)
    return (
        metrics.select(METRIC_COLUMNS)
        .with_columns(floats, counts)
        .sort("dataset", "model", "method", "metric", "settings")
    )
