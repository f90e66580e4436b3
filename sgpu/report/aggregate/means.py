"""Means over cells, and ranks within them; a mean over fewer cells than the others is none."""

from __future__ import annotations

import polars as pl

from sgpu.report.aggregate.cells import Cells
from sgpu.report.study.leaderboard import COLUMNS
from sgpu.report.study.published import METRICS

HIGHER_IS_BETTER = {column.metric: column.higher_is_better for column in COLUMNS}
_EXACT = 9  # decimals: beyond the noise of adding up, far below what is printed


def overall_mean(cells: Cells) -> pl.DataFrame:
    """Per method: METRICS averaged over every cell, with ``n_<metric>`` of ``n_cells`` known."""
    return _means(cells, [])


def model_mean(cells: Cells) -> pl.DataFrame:
    """Per model and method: METRICS averaged over the data sets of the model."""
    return _means(cells, ["model"])


def dataset_mean(cells: Cells) -> pl.DataFrame:
    """Per data set and method: METRICS averaged over the models of the data set."""
    return _means(cells, ["dataset"])


def transfer_mean(cells: Cells) -> pl.DataFrame:
    """The mean over all cells of a transfer study, under the paper's setting name ``mean``."""
    return overall_mean(cells).select(pl.lit("mean").alias("setting"), pl.all())


def average_rank(cells: Cells, metric: str) -> pl.DataFrame:
    """Per method, best first: average rank in ``metric`` (1 is best) and the cells it wins.

    Ranks are taken within each cell, over the cells in which every method is known. Values that print
    alike share their rank and their win. Columns method, rank, wins, n_cells.
    """
    n_methods = cells.frame["method"].n_unique()
    whole = cells.frame.filter(pl.col(metric).count().over("dataset", "model") == n_methods)
    shown = pl.col(metric).round(3)
    best = shown.max() if HIGHER_IS_BETTER[metric] else shown.min()
    won = (shown == best.over("dataset", "model")).cast(pl.Float64)
    ranked = whole.with_columns(
        rank=shown.rank("average", descending=HIGHER_IS_BETTER[metric]).over("dataset", "model"),
        win=won / won.sum().over("dataset", "model"),
    )
    return (
        ranked.group_by("method", maintain_order=True)
        .agg(
            pl.col("rank").mean().round(_EXACT),
            pl.col("win").sum().round(_EXACT).alias("wins"),
            pl.len().cast(pl.Int64).alias("n_cells"),
        )
        .sort("rank", "method")
    )


def _means(cells: Cells, by: list[str]) -> pl.DataFrame:
    """Rows for every method and group, in the order of the paper: methods first, then groups."""
    pairs = cells.frame.select("dataset", "model").unique(maintain_order=True)
    groups = pairs.group_by(by).len("n_cells") if by else pairs.select(pl.len().alias("n_cells"))
    grid = pl.DataFrame({"method": cells.names("method")}).join(groups, how="cross")
    known = cells.frame.group_by([*by, "method"]).agg(
        *(pl.col(metric).mean().round(_EXACT) for metric in METRICS),
        *(pl.col(metric).count().alias(f"n_{metric}") for metric in METRICS),
    )
    found = grid.join(known, on=[*by, "method"], how="left").with_columns(
        pl.col([f"n_{metric}" for metric in METRICS]).fill_null(0)
    )
    complete = [
        pl.when(pl.col(f"n_{metric}") == pl.col("n_cells")).then(pl.col(metric)).alias(metric)
        for metric in METRICS
    ]
    order = [pl.col(name).cast(pl.Enum(cells.names(name))) for name in ("method", *by)]
    return found.with_columns(complete).sort(order).select(*by, "method", *METRICS, pl.col(r"^n_.*$"))
