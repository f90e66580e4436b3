"""Everything that the report of aggregates holds: the tables as files, and the tables as printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import polars as pl

from sgpu.report.aggregate.cells import KEY, Cells, average_rank, means
from sgpu.report.aggregate.consistency import (
    PublishedCheck,
    check_published,
    findings_frame,
    has_the_papers_pairs,
    models_of_the_paper,
    paper_as_cells,
)
from sgpu.report.study import published
from sgpu.report.study.published import FAMILIES, METRICS
from sgpu.report.table import PAPER_COLUMNS, ReportTable, Row, Score, mark_rows

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
    """``tables``: in the order of the page. ``files``: further CSV files, name without ending -> frame.

    ``checks`` are of the given cells where those are the paper's, else of the paper's own cells.
    """

    cells: Cells
    of_the_paper: bool
    checks: list[PublishedCheck]
    tables: list[ReportTable]
    files: dict[str, pl.DataFrame]


def contents(cells: Cells, transfer: Cells | None = None) -> Contents:
    """All tables of ``cells``, and those of a ``transfer`` study where there is one."""
    of_the_paper = cells.are_of_the_paper()
    checks = check_published(cells if of_the_paper else paper_as_cells()) if is_compared(cells) else []
    caption = "Every cell. Marks are set within a data set."
    tables = [*_means(cells), _table("summary", "Complete results", caption, cells, KEY)]
    tables += _transfer_tables(transfer) if transfer else []
    files = {
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


def _means(cells: Cells) -> list[ReportTable]:
    """The means over all cells, over the datasets of each model, and over the models of each dataset."""
    same, models = has_the_papers_pairs(cells), models_of_the_paper(cells)
    caption = f"Mean over {len(cells.pairs())} cells (data set and model)."
    overall = _table("overall_mean", "Overall mean", caption, cells, ("method",), lambda *_: same)
    families = pl.Series("family", [published.family(name) for name in overall.frame["method"]], pl.String)
    frame = overall.frame.with_columns(families).select("method", "family", *METRICS)
    return [
        replace(overall, frame=frame),
        _table(
            "model_mean", "Model-wise means", "Mean over the data sets of each model.", cells,
            ("model", "method"), lambda _, model: model in models,
        ),
        _table(
            UNPUBLISHED, "Data-set means",
            "Mean over the models of each data set. The paper prints no such table.", cells,
            ("dataset", "method"), lambda *_: False,
        ),
    ]  # fmt: skip


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


def _transfer_tables(cells: Cells) -> list[ReportTable]:
    cells = _zero_shot(cells)
    averaged = means(cells, "dataset").with_columns(model=pl.lit(MEAN_GROUP))
    complete = replace(cells, frame=pl.concat([cells.frame, averaged], how="diagonal"))
    ours, paper = cells.pairs(), published.read_published_table("transfer_text").select("dataset", "model")
    printed = {pair for pair in paper.iter_rows() if pair[1] != MEAN_GROUP}
    differ = {dataset for dataset, _ in ours ^ printed}
    table = _table(
        "transfer_text", "Transfer to text: complete",
        "Models and data sets that the classifier has not seen; the mean is over the models.",
        complete, KEY, lambda dataset, model: model != MEAN_GROUP or dataset not in differ,
    )  # fmt: skip
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("dataset", "method")]
    caption = f"Mean over {len(ours)} cells that the classifier has not seen."
    mean = _table("transfer_text_mean", "Transfer to text", caption, cells, KEY[-1:], lambda *_: not differ)
    frame = mean.frame.select(pl.lit(MEAN_GROUP).alias("setting"), pl.all())
    return [replace(mean, frame=frame), replace(table, frame=table.frame.sort(order, maintain_order=True))]


def _table(
    name: str, title: str, caption: str, cells: Cells, keys: Sequence[str],
    comparable: Callable[[str, str], bool] = lambda *_: True,
) -> ReportTable:  # fmt: skip
    """A row per method, in a group of columns for each name of the last but one of ``keys``.

    With all of KEY, rows stand under their dataset and marks are set within it. Fewer ``keys`` give means,
    under the family of their method. ``comparable`` says of a heading and a group whether the paper's
    numbers there are over the same cells.
    """
    frame = beside = cells.frame if keys == KEY else means(cells, *keys[:-1])
    if name != UNPUBLISHED and is_compared(cells):
        printed = published.read_published_table(name).select(
            *keys, pl.col(METRICS).name.suffix("_published")
        )
        beside = frame.join(printed, on=keys, how="full", coalesce=True)
    groups = cells.names(keys[-2]) if keys[1:] else [""]
    found = {tuple(row[key] for key in keys): row for row in beside.iter_rows(named=True)}

    def look_up(block: str, group: str, method: str, metric: str) -> Score:
        key = (block, group, method)[-len(keys) :]
        row = found.get(key, {})
        of = row.get("n_cells") or 1
        return Score(
            row.get(metric),
            absent="missing" if of == 1 else f"in {row.get(f'n_{metric}') or 0} of {of} cells",
            p=row.get(f"{metric}_p"),
            published=row.get(f"{metric}_published"),
            comparable=comparable(block, group),
            doubtful=(name, "|".join(key), metric) in doubtful_values(),
        )

    rows = [
        Row((method,), tuple(look_up(block, group, method, m) for group in groups for m in METRICS), block)
        for block, method in _places(cells, by_dataset=keys == KEY)
    ]
    columns = tuple(replace(measure, group=group) for group in groups for measure in PAPER_COLUMNS)
    marked = tuple(mark_rows(rows, columns, lambda row: row.block if keys == KEY else ""))
    return ReportTable(name, title, caption, ("Method",), columns, marked, frame.select(*keys, *METRICS))


def _places(cells: Cells, *, by_dataset: bool) -> list[tuple[str, str]]:
    """(heading, method) of every row: the methods that each dataset has, or those of each family."""
    methods = cells.names("method")
    if by_dataset:
        present = set(cells.frame.select("dataset", "method").iter_rows())
        return [(d, m) for d in cells.names("dataset") for m in methods if (d, m) in present]
    families = [(kind, (kind or "other").capitalize()) for kind in (*FAMILIES, None)]
    return [(title, m) for kind, title in families for m in methods if published.family(m) == kind]


def is_compared(cells: Cells) -> bool:
    """Return whether the paper's numbers stand beside those of ``cells``: if it has any of these cells."""
    return published.are_of_the_paper(cells.pairs())


def _comparison(tables: Sequence[ReportTable]) -> pl.DataFrame:
    """Published beside ours for every printed value; ``difference`` is empty where the cells differ."""
    rows = [
        (
            table.name, row.block if table.name in ("summary", "transfer_text") else "", column.group,
            *row.names, column.name, score.published, score.value,
            None if score.difference is None else round(score.difference, 6), not score.doubtful,
        )
        for table in tables
        for row in table.rows
        for column, score in zip(table.measures, row.scores, strict=True)
        if score.published is not None
    ]  # fmt: skip
    schema = {
        **dict.fromkeys(("table", "dataset", "model", "method", "metric"), pl.String),
        **dict.fromkeys(("published", "ours", "difference"), pl.Float64),
        "published_follows": pl.Boolean,
    }
    return pl.DataFrame(rows, schema, orient="row")
