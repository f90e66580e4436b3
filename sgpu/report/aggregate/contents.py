"""Everything that the report of aggregates holds: the tables as files, and the tables as printed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from sgpu.report.aggregate.cells import (
    KEY,
    Cells,
    average_rank,
    means,
    transfer_mean,
)
from sgpu.report.aggregate.consistency import PublishedCheck, check_published, findings_frame, paper_as_cells
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

Printed = Mapping[tuple[str, ...], Mapping[str, float]]
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
    transfer: Cells | None
    of_the_paper: bool
    checks: list[PublishedCheck]
    files: dict[str, pl.DataFrame] = field(default_factory=dict)
    tables: list[MethodTable] = field(default_factory=list)


def contents(cells: Cells, transfer: Cells | None = None) -> Contents:
    """All tables of ``cells``, and those of a ``transfer`` study where there is one."""
    of_the_paper = cells.are_of_the_paper()
    checks = check_published(cells if of_the_paper else paper_as_cells())
    found = Contents(cells, transfer, of_the_paper, checks)
    doubts = doubtful_values()
    for table, frame in (
        _overall(cells, doubts),
        _by_model(cells, doubts),
        _by_dataset(cells),
        _summary(cells),
        *(_transfer_tables(transfer, doubts) if transfer else ()),
    ):
        found.tables.append(table)
        found.files[table.name] = frame
    found.files["ranks"] = average_rank(cells, "auroc")
    found.files["inconsistencies"] = findings_frame(checks)
    found.files["comparison"] = _comparison(found.tables)
    return found


def doubtful_values() -> set[tuple[str, str, str]]:
    """(table, cell, metric) of every published mean that does not follow from the paper's own cells."""
    return {
        (_MEANS_OF_CELLS[check.name], finding.cell, finding.metric)
        for check in check_published(paper_as_cells())
        if check.name in _MEANS_OF_CELLS
        for finding in check.findings
    }


def _overall(cells: Cells, doubts: set[tuple[str, str, str]]) -> tuple[MethodTable, pl.DataFrame]:
    frame = means(cells)
    same = {""} if cells.pairs() == paper_as_cells().pairs() else set()
    printed = published.printed("overall_mean", ["method"])
    look_up = _look_up("overall_mean", frame, None, printed, same, doubts)
    rows = ranked_rows(cells.names("method"), columns_for([""]), look_up)
    caption = f"Mean over {len(cells.pairs())} cells (data set and model)."
    table = MethodTable("overall_mean", "Overall mean", caption, columns_for([""]), by_family(rows))
    families = pl.Series("family", [published.family(name) for name in frame["method"]], pl.String)
    return table, frame.with_columns(families).select("method", "family", *METRICS)


def _by_model(cells: Cells, doubts: set[tuple[str, str, str]]) -> tuple[MethodTable, pl.DataFrame]:
    frame = means(cells, "model")
    printed = published.printed("model_mean", ["model", "method"])
    models = cells.names("model")
    same = {model for model in models if _datasets(cells, model) == _datasets(paper_as_cells(), model)}
    look_up = _look_up("model_mean", frame, "model", printed, same, doubts)
    rows = ranked_rows(cells.names("method"), columns_for(models), look_up)
    caption = "Mean over the data sets of each model."
    table = MethodTable("model_mean", "Model-wise means", caption, columns_for(models), by_family(rows))
    return table, frame.select("model", "method", *METRICS)


def _by_dataset(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    frame = means(cells, "dataset")
    columns = columns_for(cells.names("dataset"))
    look_up = _look_up("dataset_mean", frame, "dataset", {}, (), set())
    rows = ranked_rows(cells.names("method"), columns, look_up)
    caption = "Mean over the models of each data set. The paper prints no such table."
    table = MethodTable("dataset_mean", "Data-set means", caption, columns, by_family(rows))
    return table, frame.select("dataset", "method", *METRICS)


def _summary(cells: Cells) -> tuple[MethodTable, pl.DataFrame]:
    printed = published.printed("summary", KEY)
    columns = columns_for(cells.names("model"))
    caption = "Every cell. Marks are set within a data set."
    blocks = _blocks(cells.frame, cells, columns, printed)
    table = MethodTable("summary", "Complete results", caption, columns, blocks)
    return table, cells.frame.select(*KEY, *METRICS)


def _blocks(
    complete: pl.DataFrame, cells: Cells, columns: Sequence[GroupedMeasure], printed: Printed
) -> tuple[Block, ...]:
    """The rows of each data set; published values are those whose key begins with it."""
    blocks = []
    for dataset in cells.names("dataset"):
        frame = complete.filter(pl.col("dataset") == dataset)
        own = {key[1:]: value for key, value in printed.items() if key[0] == dataset}
        look_up = _look_up("", frame, "model", own, {column.group for column in columns}, set())
        there = [method for method in cells.names("method") if method in set(frame["method"])]
        blocks.append(Block(dataset, tuple(ranked_rows(there, columns, look_up))))
    return tuple(blocks)


def _transfer_tables(
    cells: Cells, doubts: set[tuple[str, str, str]]
) -> list[tuple[MethodTable, pl.DataFrame]]:
    methods = cells.names("method")
    averaged = means(cells, "dataset").with_columns(model=pl.lit(MEAN_GROUP))
    columns = columns_for([*cells.names("model"), MEAN_GROUP])
    complete = pl.concat([cells.frame, averaged], how="diagonal")
    printed = published.printed("transfer_text", KEY)
    blocks = _blocks(complete, cells, columns, printed)
    caption = "Models and data sets that the classifier has not seen; the mean is over the models."
    table = MethodTable("transfer_text", "Transfer to text: complete", caption, columns, blocks)
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("dataset", "method")]
    ordered = complete.sort(order, maintain_order=True).select(*KEY, *METRICS)

    overall = transfer_mean(cells)
    paper = published.table("transfer_text").filter(pl.col("model") != MEAN_GROUP)
    same = {""} if cells.pairs() == set(paper.select("dataset", "model").iter_rows()) else set()
    means_printed = published.printed("transfer_text_mean", ["method"])
    look_up = _look_up("transfer_text_mean", overall, None, means_printed, same, doubts)
    rows = ranked_rows(methods, columns_for([""]), look_up)
    caption = f"Mean over {len(cells.pairs())} cells that the classifier has not seen."
    mean = MethodTable("transfer_text_mean", "Transfer to text", caption, columns_for([""]), by_family(rows))
    return [(mean, overall.select("setting", "method", *METRICS)), (table, ordered)]


def _look_up(
    table: str,
    frame: pl.DataFrame,
    by: str | None,
    printed: Printed,
    comparable: Collection[str],
    doubts: set[tuple[str, str, str]],
) -> Callable[[str, GroupedMeasure], Value]:
    """A function that finds the value of a method in a column; ``comparable`` names groups of columns."""
    rows = {(row[by] if by else "", row["method"]): row for row in frame.iter_rows(named=True)}

    def look_up(method: str, column: GroupedMeasure) -> Value:
        metric = column.measure.name
        key = (column.group, method) if by else (method,)
        row = rows.get((column.group, method), {})
        return Value(
            row.get(metric),
            n=row.get(f"n_{metric}") or 0,
            of=row.get("n_cells") or 1,
            p=row.get(f"{metric}_p"),
            published=printed.get(key, {}).get(metric),
            comparable=column.group in comparable,
            doubtful=(table, "|".join(key), metric) in doubts,
        )

    return look_up


def _datasets(cells: Cells, model: str) -> set[str]:
    return {dataset for dataset, other in cells.pairs() if other == model}


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
