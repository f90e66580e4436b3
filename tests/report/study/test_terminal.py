from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import polars as pl
from rich.console import Console

from sgpu.report.study.data import ReportData
from sgpu.report.study.leaderboard import leaderboard
from sgpu.report.study.terminal import show_methods

CELL = ("Qwen2.5-0.5B-Instruct", "trivia")


def printed(data: ReportData) -> list[str]:
    file = io.StringIO()
    show_methods(Console(file=file, width=100), data)
    return file.getvalue().splitlines()


def test_the_methods_of_one_cell_are_printed_best_first(make_data: Callable[..., ReportData]) -> None:
    data = make_data(cells=(CELL,))
    board = [row for row in leaderboard(data, *CELL) if row.scores]
    head, *lines = printed(data)
    assert head.split("  ")[0] == "method" and "95% interval" in head
    first = board[0]
    assert lines[0].split() == [
        first.method,
        first.auroc.text,
        *first.auroc.interval.split(),
        first.scores[2].text,
    ]
    assert [line.split()[0] for line in lines] == [row.method for row in board]


def test_of_several_cells_the_means_and_the_range_are_printed(make_data: Callable[..., ReportData]) -> None:
    data = make_data()
    rows = data.metrics.filter(pl.col("metric") == "auroc", method="sgpu")
    head, *lines = printed(data)
    assert head.startswith("means of 2 cells")
    low, high = sorted(rows["value"])
    shown = next(line.split() for line in lines if line.startswith("sgpu "))
    assert shown[1:5] == [f"{(low + high) / 2:.3f}", f"{low:.3f}", "to", f"{high:.3f}"]


def test_at_most_sixteen_lines_are_printed(make_data: Callable[..., ReportData]) -> None:
    data = make_data(cells=(CELL,))
    copies = [data.metrics.with_columns(method=pl.col("method") + f"_{i}") for i in range(5)]
    lines = printed(dataclasses.replace(data, metrics=pl.concat(copies)))
    assert len(lines) == 16 and lines[-1] == "further methods in the report: 16"


def test_nothing_is_printed_where_nothing_is_ranked(make_data: Callable[..., ReportData]) -> None:
    assert printed(make_data(one_class=True)) == []
