from __future__ import annotations

import dataclasses
from collections.abc import Callable

import polars as pl

from sgpu.report.study.data import ReportData
from sgpu.report.study.leaderboard import leaderboard, overview


def test_rows_are_ordered_by_auroc_with_undefined_and_unavailable_last(
    make_data: Callable[..., ReportData],
) -> None:
    data = make_data(cells=(("Qwen2.5-0.5B-Instruct", "trivia"),))
    undefined = pl.when((pl.col("method") == "sgpu") & (pl.col("metric") == "auroc"))
    data = dataclasses.replace(
        data, metrics=data.metrics.with_columns(value=undefined.then(None).otherwise(pl.col("value")))
    )
    board = leaderboard(data, "Qwen2.5-0.5B-Instruct", "trivia")
    defined = [row.auroc.value for row in board[:-2]]
    assert defined == sorted(defined, reverse=True)
    assert (board[-2].method, board[-2].auroc.text) == ("sgpu", "undefined")
    assert (board[-1].method, board[-1].why) == ("semantic_entropy", "no token log-probabilities")


def test_overview_ends_with_the_mean_of_methods_that_every_cell_has(
    make_data: Callable[..., ReportData],
) -> None:
    data = make_data()
    boards = {cell: leaderboard(data, *cell) for cell in data.cells()}
    table = overview(boards)
    means = {column.name: score for column, score in zip(table.measures, table.rows[-1].scores, strict=True)}
    auroc = data.metrics.filter((pl.col("metric") == "auroc") & (pl.col("method") == "sgpu"))["value"]
    assert means["sgpu"].value == auroc.mean()
    assert means["semantic_entropy"].value is None
