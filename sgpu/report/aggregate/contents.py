"""Everything that the report of aggregates holds: the tables as files, and the tables as printed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
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

UNPUBLISHED = "dataset_mean"  # the paper has no such table
# What a transfer study calls the pool of vision cells that never saw its text target, and the paper's name.
ZERO_SHOT = {"from vision cells": "Global-SGPU"}
MEAN_GROUP = "mean"  # how the paper names the mean in its transfer table
# The checks of means against their own cells -> the table that they are of.
_MEANS_OF_CELLS = {
    "overall_mean vs summary": "overall_mean",
    "model_mean vs summary": "model_mean",
    "transfer main-text mean vs 4 cells": "transfer_text_mean",
}


@dataclass(frozen=True)
class Contents:
    """``tables``: in the order of the page. ``files``: name without ending -> frame.

    ``checks`` are of the given cells where those are the paper's, else of the paper's own cells.
    """

    cells: Cells
    of_the_paper: bool
    checks: list[PublishedCheck]
    tables: list[MethodTable]
    files: dict[str, pl.DataFrame]


def contents(cells: Cells, transfer: Cells | None = None) -> Contents:
    """All tables of ``cells``, and those of a ``transfer`` study where there is one."""
    of_the_paper = cells.are_of_the_paper()
    checks = check_published(cells if of_the_paper else paper_as_cells()) if is_compared(cells) else []
    tables = [_overall(cells), _by_model(cells), _by_dataset(cells), _summary(cells)]
    tables += _transfer_tables(transfer) if transfer else []
    files = {
        **{table.name: table.frame for table in tables},
        "ranks": average_rank(cells, "auroc"),
        "inconsistencies": findings_frame(checks),
        "comparison": _comparison(tables),
    }
    return Contents(cells, of_the_paper, checks, tables, files)


@cache
def doubtful_values() -> set[tuple[str, str, str]]:
    """(table, cell, metric) of every published mean that does not follow from the paper's own cells."""
    return {
        (_MEANS_OF_CELLS[check.name], finding.cell, finding.metric)
        for check in check_published(paper_as_cells())
        if check.name in _MEANS_OF_CELLS
        for finding in check.findings
    }


def _overall(cells: Cells) -> MethodTable:
    same = [""] if has_the_papers_pairs(cells) else []
    caption = f"Mean over {len(cells.pairs())} cells (data set and model)."
    table = _table_of_means("overall_mean", "Overall mean", caption, cells, comparable=same)
    families = pl.Series("family", [published.family(name) for name in table.frame["method"]], pl.String)
    return replace(table, frame=table.frame.with_columns(families).select("method", "family", *METRICS))


def _by_model(cells: Cells) -> MethodTable:
    caption = "Mean over the data sets of each model."
    same = models_of_the_paper(cells)
    return _table_of_means("model_mean", "Model-wise means", caption, cells, by="model", comparable=same)


def _by_dataset(cells: Cells) -> MethodTable:
    caption = "Mean over the models of each data set. The paper prints no such table."
    return _table_of_means(UNPUBLISHED, "Data-set means", caption, cells, by="dataset")


def _summary(cells: Cells) -> MethodTable:
    caption = "Every cell. Marks are set within a data set."
    return _table_of_cells("summary", "Complete results", caption, cells, cells.frame, cells.names("model"))


def _zero_shot(cells: Cells) -> Cells:
    """Return the targets of the paper's zero-shot pool, with the methods that the paper or SGPU names.

    Cells without such a pool are not a transfer study's own file and stay as they are.
    """
    target, method = pl.struct("dataset", "model"), pl.col("method")
    if not (pool := cells.frame.filter(method.is_in(list(ZERO_SHOT)))).height:
        return cells
    own = cells.frame.filter(target.is_in(pool.select(target.alias("t"))["t"].implode()))
    own = own.with_columns(method.replace(ZERO_SHOT))
    named = [name for name in own["method"].unique() if published.family(name) is not None]
    return replace(cells, frame=own.filter(method.is_in(named)))


def _transfer_tables(cells: Cells) -> list[MethodTable]:
    cells = _zero_shot(cells)
    averaged = means(cells, "dataset").with_columns(model=pl.lit(MEAN_GROUP))
    complete = pl.concat([cells.frame, averaged], how="diagonal")
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("dataset", "method")]
    table = _table_of_cells(
        "transfer_text", "Transfer to text: complete",
        "Models and data sets that the classifier has not seen; the mean is over the models.",
        cells, complete.sort(order, maintain_order=True), [*cells.names("model"), MEAN_GROUP],
    )  # fmt: skip
    paper = published.read_published_table("transfer_text").filter(pl.col("model") != MEAN_GROUP)
    same = [""] if cells.pairs() == set(paper.select("dataset", "model").iter_rows()) else []
    caption = f"Mean over {len(cells.pairs())} cells that the classifier has not seen."
    mean = _table_of_means("transfer_text_mean", "Transfer to text", caption, cells, comparable=same)
    frame = transfer_mean(cells).select("setting", "method", *METRICS)
    return [replace(mean, frame=frame), table]


def _table_of_means(
    name: str,
    title: str,
    caption: str,
    cells: Cells,
    *,
    by: str | None = None,
    comparable: Collection[str] = (),
) -> MethodTable:
    """The means of every method, if named in a group of columns for each model or data set.

    ``comparable`` are the groups in which the paper's means are over the same cells.
    """
    keys = [by, "method"] if by else ["method"]
    frame = means(cells, *keys[:-1])
    columns = columns_for(cells.names(by) if by else [""])
    look_up = _look_up(name, _beside(cells, name, frame, keys), by, comparable)
    rows = ranked_rows(cells.names("method"), columns, look_up)
    return MethodTable(name, title, caption, columns, by_family(rows), frame.select(*keys, *METRICS))


def _table_of_cells(
    name: str, title: str, caption: str, cells: Cells, frame: pl.DataFrame, groups: Sequence[str]
) -> MethodTable:
    """The rows of each data set under its name, in a group of columns for each model."""
    columns, blocks = columns_for(groups), []
    beside, paper = _beside(cells, name, frame, KEY), published.read_published_table(name)
    for dataset in cells.names("dataset"):
        present = set(frame.filter(dataset=dataset)["method"])
        methods = [method for method in cells.names("method") if method in present]
        ours, printed = (set(f.filter(dataset=dataset)["model"]) for f in (frame, paper))
        same = groups if ours == printed else [group for group in groups if group != MEAN_GROUP]
        look_up = _look_up(name, beside.filter(dataset=dataset), "model", same)
        blocks.append(Block(dataset, tuple(ranked_rows(methods, columns, look_up))))
    return MethodTable(name, title, caption, columns, tuple(blocks), frame.select(*KEY, *METRICS))


def is_compared(cells: Cells) -> bool:
    """Return whether the paper's numbers stand beside those of ``cells``: if it has any of these cells."""
    return published.are_of_the_paper(cells.pairs())


def _beside(cells: Cells, name: str, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the frame beside the published table of this name, also where that has rows of its own."""
    if name == UNPUBLISHED or not is_compared(cells):
        return frame
    printed = published.read_published_table(name).select(*keys, pl.col(METRICS).name.suffix("_published"))
    return frame.join(printed, on=keys, how="full", coalesce=True)


def _look_up(
    table: str, frame: pl.DataFrame, by: str | None, comparable: Collection[str]
) -> Callable[[str, GroupedMeasure], Value]:
    """A function that finds the value of a method in a column; ``comparable`` names groups of columns."""
    rows = {(row[by] if by else "", row["method"]): row for row in frame.iter_rows(named=True)}

    def look_up(method: str, column: GroupedMeasure) -> Value:
        metric, row = column.name, rows.get((column.group, method), {})
        return Value(
            row.get(metric),
            n=row.get(f"n_{metric}") or 0,
            of=row.get("n_cells") or 1,
            p=row.get(f"{metric}_p"),
            published=row.get(f"{metric}_published"),
            comparable=column.group in comparable,
            doubtful=(table, f"{column.group}|{method}" if by else method, metric) in doubtful_values(),
        )

    return look_up


def _comparison(tables: Sequence[MethodTable]) -> pl.DataFrame:
    """Published beside ours for every printed value; ``difference`` is empty where the cells differ."""
    rows = [
        (
            table.name, block.title if table.name in ("summary", "transfer_text") else "", column.group,
            row.method, column.name, entry.published, entry.value,
            None if entry.difference is None else round(entry.difference, 6), not entry.doubtful,
        )
        for table in tables
        for block in table.blocks
        for row in block.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry.published is not None
    ]  # fmt: skip
    schema = {
        **dict.fromkeys(("table", "dataset", "model", "method", "metric"), pl.String),
        **dict.fromkeys(("published", "ours", "difference"), pl.Float64),
        "published_follows": pl.Boolean,
    }
    return pl.DataFrame(rows, schema, orient="row")
