"""Small tables: marks, the paper's values beside ours, LaTeX."""

from __future__ import annotations

import polars as pl
import pytest

from sgpu.report.study.study_table import study_table
from sgpu.report.table import ReportTable

COLUMNS = ("dataset", "model", "n_samples", "auroc", "auarc_20", "ece")


def n_samples(*rows: tuple[str, str, str, float, float, float], beside_paper: bool = False) -> ReportTable:
    frame = pl.DataFrame([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    return study_table("n_samples", frame, beside_paper=beside_paper)


@pytest.fixture
def beside() -> ReportTable:
    """One row of the paper's cell and one of another."""
    return n_samples(
        ("OKVQA", "Qwen2.5-VL-3B", "5", 0.82, 0.79, 0.1), ("world_facts", "smol", "5", 0.7, 0.5, 0.2),
        beside_paper=True,
    )  # fmt: skip


def test_the_papers_value_stands_beside_the_same_cell_only(beside: ReportTable) -> None:
    ours = {row.names[0]: row.scores[0] for row in beside.rows}
    assert ours["OKVQA"].published == 0.811
    assert ours["OKVQA"].difference == pytest.approx(0.009)
    assert ours["world_facts"].published is None


def test_rows_that_only_the_paper_has_are_kept_apart(beside: ReportTable) -> None:
    assert beside.paper is not None
    assert [row.names[2] for row in beside.paper.rows] == ["10", "15", "20"]


def test_best_and_second_are_marked_within_a_cell_by_direction() -> None:
    table = n_samples(
        ("a", "m", "5", 0.7, 0.5, 0.1), ("a", "m", "10", 0.8, 0.4, 0.2), ("b", "m", "5", 0.9, 0.9, 0.9)
    )
    marks = {row.names[0] + row.names[2]: [score.mark for score in row.scores] for row in table.rows}
    assert marks == {
        "a5": ["second", "best", "best"], "a10": ["best", "second", "second"], "b5": ["", "", ""],
    }  # fmt: skip


def test_latex_escapes_names_and_gives_the_papers_value(beside: ReportTable) -> None:
    text = beside.latex()
    assert r"\toprule" in text and r"world\_facts" in text and "0.820 (0.811)" in text
    assert text.count(r"\\") == 1 + len(beside.rows)


def test_an_undefined_value_is_no_number() -> None:
    table = n_samples(("a", "m", "5", float("nan"), 0.5, 0.1))
    assert table.rows[0].scores[0].text == "undefined"
    assert " -- &" in table.latex()
