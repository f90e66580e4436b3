"""Everything that the report of aggregates holds: the tables as files, and the tables as printed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import polars as pl

from sgpu.report.aggregate.cells import KEY, Cells, average_rank, means, transfer_mean
from sgpu.report.aggregate.consistency import (
    PublishedCheck,
    check_published,
    findings_frame,
    has_the_papers_pairs,
    models_of_the_paper,
    paper_as_cells,
    values,
)
from sgpu.report.aggregate.tables import (
    Block,
    GroupedMeasure,
    MethodTable,
    Value,
    by_family,
    columns_for,
    ranked_rows,
)
from sgpu.report.study import published
from sgpu.report.study.published import METRICS

MEAN_GROUP = "mean"  # how the paper names the mean in its transfer table
# The checks of means against their own cells -> the table that they are of.
_MEANS_OF_CELLS = {
    "overall_mean vs summary": "overall_mean",
    "model_mean vs summary": "model_mean",
    "transfer main-text mean vs 4 cells": "transfer_text_mean",
}


@dataclass(frozen=True)
class Contents:
    """``files``: name without ending -> frame. ``tables``: in the order of the page.

    ``checks`` are of the given cells where those are the paper's, else of the paper's own cells.
    """

    cells: Cells
    of_the_paper: bool
    checks: list[PublishedCheck]
    files: dict[str, pl.DataFrame] = field(default_factory=dict)
    tables: list[MethodTable] = field(default_factory=list)


def contents(cells: Cells, transfer: Cells | None = None) -> Contents:
    """All tables of ``cells``, and those of a ``transfer`` study where there is one."""
    of_the_paper = cells.are_of_the_paper()
    checks = check_published(cells if of_the_paper else paper_as_cells())
    found = Contents(cells, of_the_paper, checks)
    for table, frame in (
        _overall(cells),
        _by_model(cells),
        _by_dataset(cells),
        _summary(cells),
        *(_transfer_tables(transfer) if transfer else ()),
    ):
        found.tables.append(table)
        found.files[table.name] = frame
    found.files["ranks"] = average_rank(cells, "auroc")
    found.files["inconsistencies"] = findings_frame(checks)
    found.files["comparison"] = _comparison(found.tables)
    return found


@cache
def doubtful_values() -> set[tuple[str, str, str]]:
    """(table, cell, metric) of every published mean that does not follow from the paper's own cells."""
    return {
        (_MEANS_OF_CELLS[check.name], finding.cell, finding.metric)
        for check in check_published(paper_as_cells())
        if check.name in _MEANS_OF_CELLS
        for finding in check.findings
    }


def _overall(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    same = [""] if has_the_papers_pairs(cells) else []
    caption = f"Mean over {len(cells.pairs())} cells (data set and model)."
    table, frame = _table_of_means("overall_mean", "Overall mean", caption, cells, comparable=same)
    families = pl.Series("family", [published.family(name) for name in frame["method"]], pl.String)
    return table, frame.with_columns(families).select("method", "family", *METRICS)


def _by_model(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    caption = "Mean over the data sets of each model."
    same = models_of_the_paper(cells)
    return _table_of_means("model_mean", "Model-wise means", caption, cells, by="model", comparable=same)


def _by_dataset(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    caption = "Mean over the models of each data set. The paper prints no such table."
    return _table_of_means("dataset_mean", "Data-set means", caption, cells, by="dataset")


def _summary(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    columns = columns_for(cells.names("model"))
    caption = "Every cell. Marks are set within a data set."
    table = MethodTable(
        "summary", "Complete results", caption, columns, _blocks("summary", cells.frame, cells, columns)
    )
    return table, cells.frame.select(*KEY, *METRICS)


def _table_of_means(
    name: str,
    title: str,
    caption: str,
    cells: Cells,
    *,
    by: str | None = None,
    comparable: Collection[str] = (),
) -> tuple[MethodTable, pl.DataFrame]:
    """The means of every method, if named in a group of columns for each model or data set, and their file.

    ``comparable`` are the groups in which the paper's means are over the same cells.
    """
    keys = [by, "method"] if by else ["method"]
    frame = means(cells, *keys[:-1])
    columns = columns_for(cells.names(by) if by else [""])
    printed = {} if name == "dataset_mean" else values(published.table(name), *keys)
    rows = ranked_rows(cells.names("method"), columns, _look_up(name, frame, by, printed, comparable))
    return MethodTable(name, title, caption, columns, by_family(rows)), frame.select(*keys, *METRICS)


def _blocks(
    name: str, complete: pl.DataFrame, cells: Cells, columns: Sequence[GroupedMeasure]
) -> tuple[Block, ...]:
    """The rows of each data set, in columns of models; the published table is called ``name``."""
    blocks = []
    for dataset in cells.names("dataset"):
        frame = complete.filter(dataset=dataset)
        printed = values(published.table(name).filter(dataset=dataset), "model", "method")
        look_up = _look_up(name, frame, "model", printed, {column.group for column in columns})
        there = [method for method in cells.names("method") if method in set(frame["method"])]
        blocks.append(Block(dataset, tuple(ranked_rows(there, columns, look_up))))
    return tuple(blocks)


def _transfer_tables(cells: Cells) -> list[tuple[MethodTable, pl.DataFrame]]:
    averaged = means(cells, "dataset").with_columns(model=pl.lit(MEAN_GROUP))
    columns = columns_for([*cells.names("model"), MEAN_GROUP])
    complete = pl.concat([cells.frame, averaged], how="diagonal")
    blocks = _blocks("transfer_text", complete, cells, columns)
    caption = "Models and data sets that the classifier has not seen; the mean is over the models."
    table = MethodTable("transfer_text", "Transfer to text: complete", caption, columns, blocks)
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("dataset", "method")]
    ordered = complete.sort(order, maintain_order=True).select(*KEY, *METRICS)

    paper = published.table("transfer_text").filter(pl.col("model") != MEAN_GROUP)
    same = [""] if cells.pairs() == set(paper.select("dataset", "model").iter_rows()) else []
    caption = f"Mean over {len(cells.pairs())} cells that the classifier has not seen."
    mean, _ = _table_of_means("transfer_text_mean", "Transfer to text", caption, cells, comparable=same)
    return [(mean, transfer_mean(cells).select("setting", "method", *METRICS)), (table, ordered)]


def _look_up(
    table: str,
    frame: pl.DataFrame,
    by: str | None,
    printed: Mapping[tuple[str, str], float],
    comparable: Collection[str],
) -> Callable[[str, GroupedMeasure], Value]:
    """A function that finds the value of a method in a column; ``comparable`` names groups of columns."""
    rows = {(row[by] if by else "", row["method"]): row for row in frame.iter_rows(named=True)}

    def look_up(method: str, column: GroupedMeasure) -> Value:
        metric = column.measure.name
        cell = f"{column.group}|{method}" if by else method
        row = rows.get((column.group, method), {})
        return Value(
            row.get(metric),
            n=row.get(f"n_{metric}") or 0,
            of=row.get("n_cells") or 1,
            p=row.get(f"{metric}_p"),
            published=printed.get((cell, metric)),
            comparable=column.group in comparable,
            doubtful=(table, cell, metric) in doubtful_values(),
        )

    return look_up


def _comparison(tables: Sequence[MethodTable]) -> pl.DataFrame:
    """Published beside ours for every printed value; ``difference`` is empty where the cells differ."""
    rows = [
        {
            "table": table.name,
            "dataset": block.title if table.name in ("summary", "transfer_text") else "",
            "model": column.group,
            "method": row.method,
            "metric": column.measure.name,
            "published": entry.source.published,
            "ours": entry.source.value,
            "difference": None if entry.difference is None else round(entry.difference, 6),
            "published_follows": not entry.source.doubtful,
        }
        for table in tables
        for block in table.blocks
        for row in block.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry.source.published is not None
    ]
    schema = {
        **dict.fromkeys(("table", "dataset", "model", "method", "metric"), pl.String),
        **dict.fromkeys(("published", "ours", "difference"), pl.Float64),
        "published_follows": pl.Boolean,
    }
    return pl.DataFrame(rows, schema=schema)
