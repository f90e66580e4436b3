from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from sgpu.report.aggregate.cells import (
    average_rank,
    means,
    read_cells,
)

Write = Callable[..., Path]


@pytest.mark.parametrize(
    "by",
    [(), ("model",), ("dataset",)],
)
def test_means_equal_exact_decimal_arithmetic(by: tuple[str, ...], paper_file: Path) -> None:
    keys = (*by, "method")
    exact: dict[tuple[str, ...], list[Decimal]] = defaultdict(list)
    header, *lines = (line.split(",") for line in paper_file.read_text().splitlines())
    for line in lines:
        row = dict(zip(header, line, strict=True))
        exact[tuple(row[key] for key in keys)].append(Decimal(row["ece"]))
    frame = means(read_cells(paper_file), *by)
    assert frame.height == len(exact)
    for row in frame.iter_rows(named=True):
        members = exact[tuple(row[key] for key in keys)]
        assert row["ece"] == pytest.approx(float(sum(members) / len(members)), abs=1e-9)


def test_a_mean_over_fewer_cells_than_the_others_is_none_and_says_how_many(write_cells: Write) -> None:
    path = write_cells("d,m,a,0.6,0.5,0.1", "e,m,a,0.8,0.5,0.3", "d,m,b,0.9,0.5,0.1", "e,m,b,,0.5,0.1")
    a, b = means(read_cells(path)).rows(named=True)
    assert (a["auroc"], a["n_auroc"], a["n_cells"]) == (0.7, 2, 2)
    assert (b["auroc"], b["n_auroc"], b["n_cells"]) == (None, 1, 2)
    assert b["auarc_20"] == 0.5


def test_a_method_without_any_row_in_a_group_has_no_mean_there(write_cells: Write) -> None:
    path = write_cells("d,m,a,0.6,0.5,0.1", "d,n,a,0.8,0.5,0.3", "d,m,b,0.9,0.5,0.1")
    frame = means(read_cells(path), "model")
    assert frame.filter(model="n", method="b").select("auroc", "n_auroc").row(0) == (None, 0)


def test_rows_come_in_the_order_of_the_paper_whatever_the_file_has(write_cells: Write) -> None:
    lines = ("d,m,zeta,1,1,0", "d,m,SGPU,1,1,0", "d,m,SE,1,1,0", "d,m,alpha,1,1,0")
    frame = means(read_cells(write_cells(*lines)))
    assert frame["method"].cast(pl.String).to_list() == ["SE", "SGPU", "zeta", "alpha"]


def test_average_ranks_of_the_paper(paper_file: Path) -> None:
    """Known of the paper: SGPU ranks 3.62, KLE 4.46, Global-SGPU 4.88 on average; SGPU wins 4 of 24 cells."""
    frame = average_rank(read_cells(paper_file), "auroc")
    first = frame.head(3).select("method", pl.col("rank").round(2), "n_cells").rows()
    assert [name for name, _, _ in first] == ["SGPU", "KLE", "Global-SGPU"]
    assert [rank for _, rank, _ in first] == pytest.approx([3.62, 4.46, 4.88], abs=0.0051)
    assert {n for _, _, n in first} == {24}
    wins = dict(frame.select("method", "wins").iter_rows())
    assert (wins["SGPU"], wins["KLE"], wins["SAPLMA"], wins["SEP"], wins["Cov Eigenscore"]) == (
        4,
        5.5,
        5,
        4,
        2,
    )
    assert sum(wins.values()) == pytest.approx(24)


def test_ranks_leave_out_a_cell_that_lacks_a_method(write_cells: Write) -> None:
    path = write_cells("d,m,a,0.6,0.5,0.1", "d,m,b,0.7,0.5,0.1", "e,m,a,0.9,0.5,0.1", "e,m,b,,0.5,0.1")
    frame = average_rank(read_cells(path), "auroc")
    assert frame.rows() == [("b", 1.0, 1.0, 1), ("a", 2.0, 0.0, 1)]


def test_the_lowest_error_ranks_first(write_cells: Write) -> None:
    path = write_cells("d,m,a,0.6,0.5,0.1", "d,m,b,0.7,0.5,0.2")
    assert average_rank(read_cells(path), "ece")["method"].to_list() == ["a", "b"]


def test_transfer_means_are_the_means_of_the_paper_but_for_one_row(paper_file: Path) -> None:
    frame = means(read_cells(paper_file.with_name("transfer_text.csv")))
    rows = {row["method"]: row for row in frame.iter_rows(named=True)}
    assert (rows["SE"]["auroc"], rows["KLE"]["ece"]) == pytest.approx((0.752, 0.348), abs=0.001)
    assert rows["DSE"]["auarc_20"] == pytest.approx(0.4525)
