"""The per-cell numbers of a finished study in the form that the aggregate tables read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sgpu.report.aggregate.build import build_aggregate_report
from sgpu.report.study.data import ReportData

# The paper's AUARCs fit the sum of 20 rectangles and not the exact area, so that is what stands beside them.
SOURCES = {"auroc": "auroc", "auarc": "auarc_20", "ece": "ece"}
NOTE = (
    "AUARC is the sum of 20 rectangles here, as the paper's numbers fit; the exact area is in metrics.csv. "
    "A star marks a method that differs from SGPU in a paired test within the cell, after Holm's correction."
)


def cells_frame(data: ReportData) -> pl.DataFrame:
    """One row for each cell and method: the metrics of SOURCES, and the p-values of their differences."""
    key = ["dataset", "model", "method"]
    wide = data.metrics.select(key).unique(maintain_order=True)
    for name, source in SOURCES.items():
        value = data.metrics.filter(pl.col("metric") == source).select(*key, pl.col("value").alias(name))
        p = data.comparisons.filter(pl.col("metric") == source).select(
            *key, pl.col("p_holm").alias(f"{name}_p")
        )
        wide = wide.join(value, on=key, how="left").join(p, on=key, how="left")
    return wide.sort(key)


def build_study_aggregates(out: Path, data: ReportData) -> Path | None:
    """Write ``out/report/aggregate``; returns its page, None where the study measured nothing."""
    frame = cells_frame(data)
    if frame.is_empty():
        return None
    folder = out / "report" / "aggregate"
    folder.mkdir(parents=True, exist_ok=True)
    cells = folder / "cells.csv"
    frame.write_csv(cells)
    return build_aggregate_report(cells, folder, notes=(NOTE,))
