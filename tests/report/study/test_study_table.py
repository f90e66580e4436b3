"""Small tables: marks, the paper's values beside ours, LaTeX."""

from __future__ import annotations

import polars as pl
import pytest

from sgpu.report.study.leaderboard import Measure
from sgpu.report.study.study_table import StudyTable, beside_published

THREE = (Measure("auroc", "AUROC", True), Measure("auarc", "AUARC", True), Measure("ece", "ECE", False))
KEYS = ("dataset", "model", "n_samples")


def n_samples(*rows: tuple[str, str, str, float, float, float]) -> StudyTable:
    names = [*KEYS, "auroc", "auarc", "ece"]
    frame = pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    return StudyTable("n_samples", "Number of samples", "Text_1.", KEYS, THREE, frame, ("dataset", "model"))


@pytest.fixture
def beside() -> StudyTable:
    """One row of the paper's cell and one of another."""
    return beside_published(
        n_samples(
            ("OKVQA", "Qwen2.5-VL-3B", "5", 0.82, 0.79, 0.1), ("worldfacts", "smol", "5", 0.7, 0.5, 0.2)
        )
    )


def test_the_papers_value_stands_beside_the_same_cell_only(beside: StudyTable) -> None:
    ours = {row["dataset"]: row for row in beside.ours}
    assert ours["OKVQA"]["auroc_published"] == 0.811
    assert ours["OKVQA"]["auroc_difference"] == pytest.approx(0.009)
    assert ours["worldfacts"]["auroc_published"] is None


def test_rows_that_only_the_paper_has_are_kept_apart(beside: StudyTable) -> None:
    assert [row["n_samples"] for row in beside.paper_only] == ["10", "15", "20"]
    assert all(row["auroc"] is None for row in beside.paper_only)


def test_best_and_second_are_marked_within_a_cell_by_direction() -> None:
    table = n_samples(
        ("a", "m", "5", 0.7, 0.5, 0.1), ("a", "m", "10", 0.8, 0.4, 0.2), ("b", "m", "5", 0.9, 0.9, 0.9)
    )
    marks = [[score.mark for score in row] for row in table.scores()]
    assert marks == [["second", "best", "best"], ["best", "second", "second"], ["", "", ""]]


def test_latex_escapes_names_and_gives_the_papers_value(beside: StudyTable) -> None:
    text = beside.latex()
    assert r"\toprule" in text and r"Text\_1." in text and "0.820 (0.811)" in text
    assert text.count(r"\\") == 1 + len(beside.ours)


def test_an_undefined_value_is_no_number() -> None:
    table = n_samples(("a", "m", "5", float("nan"), 0.5, 0.1))
    assert table.scores()[0][0].text == "undefined"
    assert " -- &" in table.latex()
