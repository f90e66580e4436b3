"""The small tables of a whole report, and the comparison of methods in its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from sgpu.report.study import published
from sgpu.report.study.data import ReportData
from sgpu.report.study.leaderboard import leaderboard
from sgpu.report.study.page import build_report
from sgpu.report.study.study_table import study_table
from sgpu.report.study.study_tables import study_tables
from sgpu.report.table import ReportTable


@pytest.fixture
def tables(full_data: ReportData) -> dict[str, ReportTable]:
    return {table.name: table for table in study_tables(full_data)}


def test_a_full_study_fills_every_table(tables: dict[str, ReportTable]) -> None:
    assert set(tables) == {
        "bootstrap_ci", "unsafe", "self_consistency", "n_samples", "any_size", "train_size", "kernels",
        "cell_kernels",        "encoders", "transfer_matrix", "judges", "nli_vs_cosine", "eigenvalues",
        "posthoc_time",
    }  # fmt: skip


def test_a_study_without_variants_has_the_tables_of_its_metrics_only(
    make_data: Callable[..., ReportData],
) -> None:
    assert {table.name for table in study_tables(make_data())} <= {"bootstrap_ci", "unsafe"}


def test_numbers_are_ordered_by_size(tables: dict[str, ReportTable]) -> None:
    assert [row.names[-1] for row in tables["train_size"].rows][:3] == ["50", "100", "1000"]


def test_the_interval_is_printed_as_its_half_width(tables: dict[str, ReportTable]) -> None:
    for row in tables["bootstrap_ci"].rows:
        auroc, half = row.scores
        assert auroc.lo is not None and auroc.hi is not None
        assert half.value == pytest.approx((auroc.hi - auroc.lo) / 2)


def test_kernels_of_cells_stand_apart_from_those_of_the_pool(tables: dict[str, ReportTable]) -> None:
    assert {row.names for row in tables["kernels"].rows} >= {("Matern", "1.5")}
    assert [row.scores[1].value for row in tables["cell_kernels"].rows] == [2, 2]


def test_a_study_of_other_cells_has_no_number_of_the_paper(tables: dict[str, ReportTable]) -> None:
    assert not [table.name for table in tables.values() if table.compared or table.paper]


@pytest.mark.parametrize(
    ("name", "cell", "printed"),
    [
        ("unsafe", ("VizWiz", "llava-mistral-7b"), {"auroc": 0.848, "auroc_kept": 0.879}),
        ("self_consistency", ("CIFAR-10", "Qwen2.5-VL-7B"), {"n": 4058, "tn": 304}),
    ],
)
def test_numbers_from_the_papers_text_stand_beside_ours(
    name: str, cell: tuple[str, str], printed: dict[str, float]
) -> None:
    table = study_table(name, published.read_published_table(name), beside_paper=True)
    row = table.frame.row(
        by_predicate=(pl.col("dataset") == cell[0]) & (pl.col("model") == cell[1]), named=True
    )
    assert {measure: row[f"{measure}_published"] for measure in printed} == printed
    assert {row[f"{measure}_difference"] for measure in printed} == {0}


def test_methods_that_differ_from_the_first_are_starred(full_data: ReportData) -> None:
    board = leaderboard(full_data, "Qwen2.5-0.5B-Instruct", "trivia")
    against = {row.method: row.against for row in board if row.scores}
    assert against["sgpu"] is None
    other = against["predictive_entropy"]
    assert other is not None and other.significant
    assert (other.text, other.interval) == ("−0.123", "[−0.200, −0.050]")


def test_every_table_is_written_as_csv_and_latex_and_drawn_where_it_has_rows(
    full_data: ReportData, tmp_path: Path
) -> None:
    page = build_report(tmp_path, full_data).read_text("utf-8")
    folder = tmp_path / "report" / "tables"
    assert {path.stem for path in folder.glob("*.tex")} == {path.stem for path in folder.glob("*.csv")}
    assert pl.read_csv(folder / "kernels.csv").height == 2
    assert (folder / "n_samples.svg").is_file() and (folder / "n_samples.png").is_file()
    assert not (folder / "eigenvalues.svg").exists()  # one row
    assert "Beyond self-consistency" in page and "p 0.004" in page
    figures = tmp_path / "report" / "figures" / "Qwen2.5-0.5B-Instruct" / "trivia"
    assert {path.name for path in figures.glob("*.svg")} == {
        "retention.svg", "reliability.svg", "histogram.svg",
    }  # fmt: skip
