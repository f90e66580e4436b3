"""Write a report: one self-contained page and the metrics as files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sgpu.report.data import METRIC_COLUMNS, ReportData
from sgpu.report.page import render


def build_report(out: Path, data: ReportData) -> Path:
    """Write ``out/report/index.html``, ``out/metrics.csv`` and ``out/metrics.parquet``; return the page.

    The same data give the same bytes, in whatever order their rows come. The page loads nothing and
    runs nothing: figures and styles are inside it and its content policy forbids the rest.
    """
    page = out / "report" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    # Model output can hold half of a surrogate pair, which UTF-8 cannot: it is written as its escape.
    page.write_bytes(render(data).encode("utf-8", "backslashreplace"))
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
