"""Everything that the report of aggregates holds: the tables as files, and the tables as printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from sgpu.report.study import published
from sgpu.report.study.published import FAMILIES, METRICS
from sgpu.report.table import PAPER_COLUMNS, Measure, ReportTable, Row, Score, mark_rows

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
    tables = [_overall(cells), _by_model(cells), _by_dataset(cells), _summary(cells)]
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


def _overall(cells: Cells) -> ReportTable:
    caption, same = f"Mean over {len(cells.pairs())} cells (data set and model).", has_the_papers_pairs(cells)
    table = _table_of_means("overall_mean", "Overall mean", caption, cells, lambda _: same)
    families = pl.Series("family", [published.family(name) for name in table.frame["method"]], pl.String)
    return replace(table, frame=table.frame.with_columns(families).select("method", "family", *METRICS))


def _by_model(cells: Cells) -> ReportTable:
    caption, same = "Mean over the data sets of each model.", models_of_the_paper(cells)
    return _table_of_means("model_mean", "Model-wise means", caption, cells, same.__contains__, "model")


def _by_dataset(cells: Cells) -> ReportTable:
    caption = "Mean over the models of each data set. The paper prints no such table."
    return _table_of_means(UNPUBLISHED, "Data-set means", caption, cells, lambda _: False, "dataset")


def _summary(cells: Cells) -> ReportTable:
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


def _transfer_tables(cells: Cells) -> list[ReportTable]:
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
    same = cells.pairs() == set(paper.select("dataset", "model").iter_rows())
    caption = f"Mean over {len(cells.pairs())} cells that the classifier has not seen."
    mean = _table_of_means("transfer_text_mean", "Transfer to text", caption, cells, lambda _: same)
    frame = transfer_mean(cells).select("setting", "method", *METRICS)
    return [replace(mean, frame=frame), table]


def _table_of_means(
    name: str,
    title: str,
    caption: str,
    cells: Cells,
    comparable: Callable[[str], bool],
    by: str | None = None,
) -> ReportTable:
    """The means of every method by family, if named in a group of columns for each model or data set.

    ``comparable`` says of a group whether the paper's means are over the same cells.
    """
    keys = [by, "method"] if by else ["method"]
    frame = means(cells, *keys[:-1])
    beside = _beside(cells, name, frame, keys)
    groups = {group: comparable(group) for group in (cells.names(by) if by else [""])}
    rows = mark_rows(_rows(name, beside, cells.names("method"), by, groups), _columns(groups))
    kinds = {kind: (kind or "other").capitalize() for kind in (*FAMILIES, None)}
    families = [(kinds[published.family(row.names[0])], row) for row in rows]
    by_family = tuple(
        replace(row, block=kind) for kind in kinds.values() for own, row in families if own == kind
    )
    return ReportTable(
        name, title, caption, ("Method",), _columns(groups), by_family, frame.select(*keys, *METRICS)
    )


def _table_of_cells(
    name: str, title: str, caption: str, cells: Cells, frame: pl.DataFrame, groups: Sequence[str]
) -> ReportTable:
    """The rows of each data set under its name, in a group of columns for each model."""
    rows: list[Row] = []
    beside, paper = _beside(cells, name, frame, KEY), published.read_published_table(name)
    for dataset in cells.names("dataset"):
        present = set(frame.filter(dataset=dataset)["method"])
        methods = [method for method in cells.names("method") if method in present]
        ours, printed = (set(f.filter(dataset=dataset)["model"]) for f in (frame, paper))
        same = {group: group != MEAN_GROUP or ours == printed for group in groups}
        rows += _rows(name, beside.filter(dataset=dataset), methods, "model", same, dataset)
    marked = mark_rows(rows, _columns(groups), lambda row: row.block)
    return ReportTable(
        name, title, caption, ("Method",), _columns(groups), tuple(marked), frame.select(*KEY, *METRICS)
    )


def _columns(groups: Iterable[str]) -> tuple[Measure, ...]:
    """The METRICS of every group, group by group."""
    return tuple(replace(measure, group=group) for group in groups for measure in PAPER_COLUMNS)


def is_compared(cells: Cells) -> bool:
    """Return whether the paper's numbers stand beside those of ``cells``: if it has any of these cells."""
    return published.are_of_the_paper(cells.pairs())


def _beside(cells: Cells, name: str, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the frame beside the published table of this name, also where that has rows of its own."""
    if name == UNPUBLISHED or not is_compared(cells):
        return frame
    printed = published.read_published_table(name).select(*keys, pl.col(METRICS).name.suffix("_published"))
    return frame.join(printed, on=keys, how="full", coalesce=True)


def _rows(
    table: str, frame: pl.DataFrame, methods: Sequence[str], by: str | None, groups: Mapping[str, bool],
    block: str = "",
) -> list[Row]:  # fmt: skip
    """A row a method; ``groups`` of columns are comparable with the paper's or not."""
    found = {(row[by] if by else "", row["method"]): row for row in frame.iter_rows(named=True)}

    def look_up(group: str, method: str, metric: str) -> Score:
        row = found.get((group, method), {})
        of, cell = row.get("n_cells") or 1, f"{group}|{method}" if by else method
        return Score(
            row.get(metric),
            absent="missing" if of == 1 else f"in {row.get(f'n_{metric}') or 0} of {of} cells",
            p=row.get(f"{metric}_p"),
            published=row.get(f"{metric}_published"),
            comparable=groups[group],
            doubtful=(table, cell, metric) in doubtful_values(),
        )

    return [
        Row((method,), tuple(look_up(group, method, m) for group in groups for m in METRICS), block)
        for method in methods
    ]


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
