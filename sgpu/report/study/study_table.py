"""The small tables of a study: names, numbers with intervals, and what the paper prints in their place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from sgpu.report.study import published
from sgpu.report.table import COLUMNS, PAPER_COLUMNS, Measure, ReportTable, Row, Score, mark_rows

_TABLES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_bytes())
PAPER, DIFFERENCE = "_published", "_difference"


def study_table(name: str, frame: pl.DataFrame, *, beside_paper: bool = False) -> ReportTable:
    """Return a table of tables.yaml with the numbers of ``frame``, which may have no rows.

    ``frame`` holds the keys (text) and for every measure its value, if known with ``_lo`` and ``_hi``. With
    ``beside_paper`` the paper's values stand beside ours, and its rows without ours in ``paper``.
    """
    entry, known = _TABLES[name], {column.name: column for column in (*COLUMNS, *PAPER_COLUMNS)}
    title, caption, keys = entry["title"], entry["caption"], tuple(entry["keys"])
    measures = tuple(known[m] if isinstance(m, str) else Measure(**m) for m in entry["measures"])
    same_cells = "dataset" in keys  # then a row of the paper's with equal keys is over the same data
    if beside_paper:
        frame = _beside_paper(name, frame, keys, measures, same_cells)
    printed = tuple(measure for measure in measures if measure.name + PAPER in frame.columns)
    ours, paper = [], []
    for row in _ordered(frame, keys):
        names = tuple(str(row[key] or "") for key in keys)
        if any(row.get(measure.name) is not None for measure in measures):
            ours.append(Row(names, tuple(_score(measure, row, same_cells) for measure in measures)))
        else:
            values = (Score(row[m.name + PAPER], absent="–", decimals=m.decimals) for m in printed)
            paper.append(Row(names, tuple(values)))
    within = [keys.index(key) for key in entry.get("marks_within", ())]
    rows = tuple(mark_rows(ours, measures, lambda row: tuple(row.names[i] for i in within)))
    of_the_paper = ReportTable(name, title, caption, keys, printed, tuple(paper)) if paper else None
    return ReportTable(name, title, caption, keys, measures, rows, frame, of_the_paper, "published")


def _ordered(frame: pl.DataFrame, keys: Sequence[str]) -> list[dict[str, Any]]:
    """All rows in the order of the keys, numbers among them by size."""
    numbers = [pl.col(key).cast(pl.Float64, strict=False).alias(f"{key} as number") for key in keys]
    order = [name for key in keys for name in (f"{key} as number", key)]
    return frame.with_columns(numbers).sort(order, nulls_last=True).select(frame.columns).to_dicts()


def wide(frame: pl.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> pl.DataFrame:
    """One row for each ``keys``, in order of appearance, with value, ``_lo`` and ``_hi`` of every metric."""
    rows = frame.select(keys).unique(maintain_order=True)
    for metric in metrics:
        own = frame.filter(metric=metric).select(
            *keys,
            *(
                pl.col(name).cast(pl.Float64).alias(metric + end)
                for name, end in (("value", ""), ("lo", "_lo"), ("hi", "_hi"))
            ),
        )
        rows = rows.join(own, on=keys, how="left", maintain_order="left")
    return rows


def _beside_paper(
    name: str, frame: pl.DataFrame, keys: Sequence[str], measures: Sequence[Measure], same_cells: bool
) -> pl.DataFrame:
    """Add the paper's values and rows, and where both are over the same cells their differences."""
    paper = published.read_published_table(name)
    named = [pl.col(key).cast(pl.String).fill_null("").alias(key) for key in keys]
    both = [measure.name for measure in measures if measure.name in paper.columns]
    values = [pl.col(metric).cast(pl.Float64).alias(metric + PAPER) for metric in both]
    joined = frame.with_columns(named).join(
        paper.select(*named, *values), on=list(keys), how="full", coalesce=True, maintain_order="left_right"
    )
    gaps = [(pl.col(metric) - pl.col(metric + PAPER)).alias(metric + DIFFERENCE) for metric in both]
    return joined.with_columns(gaps if same_cells else [])


def _score(measure: Measure, row: dict[str, Any], same_cells: bool) -> Score:
    value, lo, hi, paper = (row.get(measure.name + end) for end in ("", "_lo", "_hi", PAPER))
    return Score(value, lo, hi, decimals=measure.decimals, published=paper, comparable=same_cells)
