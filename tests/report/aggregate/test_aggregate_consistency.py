from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

from sgpu.report.aggregate.cells import read_cells
from sgpu.report.aggregate.consistency import (
    COPY_BOUND,
    MEAN_BOUND,
    check_published,
    compare,
    findings_frame,
    paper_as_cells,
)

Write = Callable[..., Path]


def test_exactly_the_known_published_values_do_not_follow(paper_file: Path) -> None:
    found = findings_frame(check_published(read_cells(paper_file)))
    known = pl.read_csv(paper_file.with_name("inconsistencies.csv"), infer_schema=False)
    assert_frame_equal(found, known)


def test_all_other_published_means_follow(paper_file: Path) -> None:
    checks = {check.name: check for check in check_published(read_cells(paper_file))}
    model, overall = checks["model_mean vs summary"], checks["overall_mean vs summary"]
    assert (model.compared, model.not_comparable, len(model.findings)) == (132, 0, 4)
    assert (overall.compared, overall.not_comparable, len(overall.findings)) == (33, 0, 4)


def test_the_shipped_numbers_are_the_papers_cells(paper_file: Path) -> None:
    assert_frame_equal(paper_as_cells().frame, read_cells(paper_file).frame)


def test_a_corrected_cell_makes_its_means_follow(paper_file: Path, tmp_path: Path) -> None:
    """The transfer table prints .182 where the complete results print .151: with it both means follow."""
    here = (
        (pl.col("dataset") == "OKVQA") & (pl.col("model") == "Qwen2.5-VL-7B") & (pl.col("method") == "SGPU")
    )
    frame = pl.read_csv(paper_file).with_columns(ece=pl.when(here).then(0.182).otherwise(pl.col("ece")))
    frame.write_csv(tmp_path / "corrected.csv")
    checks = check_published(read_cells(tmp_path / "corrected.csv"))
    ece = {(f.check, f.cell) for check in checks for f in check.findings if f.metric == "ece"}
    assert ece == {("overall_mean vs summary", "PE"), ("transfer main-text mean vs 4 cells", "DSE")}


def test_a_wrong_cell_is_found_in_both_of_its_means(paper_file: Path, tmp_path: Path) -> None:
    here = (
        (pl.col("dataset") == "VizWiz") & (pl.col("model") == "Qwen2.5-VL-3B") & (pl.col("method") == "KLE")
    )
    frame = pl.read_csv(paper_file).with_columns(auroc=pl.when(here).then(0.434).otherwise(pl.col("auroc")))
    frame.write_csv(tmp_path / "wrong.csv")
    checks = check_published(read_cells(tmp_path / "wrong.csv"))
    found = {(f.check.split(" vs ")[0], f.cell) for c in checks for f in c.findings if f.metric == "auroc"}
    assert {("model_mean", "Qwen2.5-VL-3B|KLE"), ("overall_mean", "KLE")} <= found


def test_means_over_other_cells_are_not_compared(paper_file: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(paper_file).filter(
        ~((pl.col("dataset") == "VizWiz") & (pl.col("model") == "Qwen2.5-VL-3B"))
    )
    frame.write_csv(tmp_path / "part.csv")
    checks = {check.name: check for check in check_published(read_cells(tmp_path / "part.csv"))}
    assert checks["overall_mean vs summary"].compared == 0
    assert checks["overall_mean vs summary"].not_comparable == 33
    assert checks["model_mean vs summary"].compared == 99


def test_a_mean_may_be_off_by_its_bound_and_no_more() -> None:
    printed = {("a", "ece"): 0.5, ("b", "ece"): 0.5}
    check = compare("x", printed, {("a", "ece"): 0.501, ("b", "ece"): 0.50101}, MEAN_BOUND)
    assert [finding.cell for finding in check.findings] == ["b"]


def test_a_copy_must_be_the_same_and_says_if_only_the_last_digit_differs() -> None:
    printed = {("a", "ece"): 0.5, ("b", "ece"): 0.5}
    slight = compare("x", printed, {("a", "ece"): 0.501, ("b", "ece"): 0.5}, COPY_BOUND)
    assert (slight.name, len(slight.findings)) == ("x (last digit only)", 1)
    assert compare("x", printed, {("a", "ece"): 0.502}, COPY_BOUND).name == "x"
    assert compare("x", printed, printed, COPY_BOUND).name == "x"
