from __future__ import annotations

import dataclasses
from collections.abc import Callable

import polars as pl

from sgpu.report.study.data import ReportData
from sgpu.report.study.leaderboard import Score, leaderboard, marked, overview


def marks(*values: float | None, higher: bool = True) -> list[str]:
    return [score.mark for score in marked([Score("", value=value) for value in values], higher)]


def test_best_and_second_are_marked() -> None:
    assert marks(0.7, 0.9, 0.8) == ["", "best", "second"]


def test_lower_is_better_for_errors() -> None:
    assert marks(0.3, 0.1, 0.2, higher=False) == ["", "best", "second"]


def test_tie_for_the_first_place_leaves_no_second() -> None:
    assert marks(0.9, 0.9, 0.8) == ["best", "best", ""]


def test_tie_for_the_second_place_marks_both() -> None:
    assert marks(0.8, 0.9, 0.8) == ["second", "best", "second"]


def test_values_that_print_alike_are_tied() -> None:
    assert marks(0.90012, 0.90048, 0.5) == ["best", "best", ""]


def test_undefined_values_are_never_marked() -> None:
    assert marks(None, 0.5, 0.6) == ["", "second", "best"]


def test_nothing_is_marked_where_nothing_can_be_compared() -> None:
    assert marks(0.9, None) == ["", ""]
    assert marks(0.9, 0.9) == ["", ""]


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
    methods, rows = overview(boards)
    auroc = data.metrics.filter((pl.col("metric") == "auroc") & (pl.col("method") == "sgpu"))["value"]
    assert rows[-1].scores[methods.index("sgpu")].value == auroc.mean()
    assert rows[-1].scores[methods.index("semantic_entropy")].value is None
