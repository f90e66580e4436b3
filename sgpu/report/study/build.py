"""Write a report: one self-contained page and the metrics as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sgpu.report.look.svg import save
from sgpu.report.study.data import METRIC_COLUMNS, ReportData
from sgpu.report.study.page import cell_views, render
from sgpu.report.study.table_views import TableView, table_views


def build_report(out: Path, data: ReportData) -> Path:
    """Write ``out/report`` (page, tables), ``out/metrics.csv`` and ``out/metrics.parquet``; return the page.

    The same data give the same bytes, in whatever order their rows come. The page loads nothing and
    runs nothing: figures and styles are inside it and its content policy forbids the rest.
    """
    tables, cells = table_views(data), cell_views(data)
    page = out / "report" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    # Model output can hold half of a surrogate pair, which UTF-8 cannot: it is written as its escape.
    page.write_bytes(render(data, cells, tables).encode("utf-8", "backslashreplace"))
    _write_tables(page.parent / "tables", tables)
    for cell in cells:
        folder = page.parent / "figures" / cell.model / cell.dataset
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in cell.figures().items():
            save(figure, folder / name)
    metrics = metrics_table(data.metrics)
    metrics.write_csv(out / "metrics.csv")
    metrics.write_parquet(out / "metrics.parquet")
    return page


def _write_tables(folder: Path, views: Sequence[TableView]) -> None:
    folder.mkdir(exist_ok=True)
    for view in views:
        table = view.table
        table.frame.write_csv(folder / f"{table.name}.csv")
        (folder / f"{table.name}.tex").write_text(table.latex(), "utf-8")
        if view.figure is not None:
            save(view.figure, folder / table.name)


def metrics_table(metrics: pl.DataFrame) -> pl.DataFrame:
    """METRIC_COLUMNS in key order; an undefined number is null, never NaN."""
    floats = pl.col("value", "lo", "hi").cast(pl.Float64).fill_nan(None)
    counts = pl.col("n", "n_missing").cast(pl.Int64)
    return (
        metrics.select(METRIC_COLUMNS)
        .with_columns(floats, counts)
        .sort("dataset", "model", "method", "metric", "settings")
    )
