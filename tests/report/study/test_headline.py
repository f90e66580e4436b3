from __future__ import annotations

import dataclasses
from collections.abc import Callable

import polars as pl

from sgpu.report.study.data import ReportData, StageSummary
from sgpu.report.study.page import render_study

Make = Callable[..., ReportData]
ONE = (("m", "trivia"),)


def with_auroc(data: ReportData, **values: float) -> ReportData:
    """The data with the AUROC of the named methods replaced, each with an interval of 0.01 about it."""
    value = pl.col("value")
    for method, auroc in values.items():
        hit = (pl.col("method") == method) & (pl.col("metric") == "auroc")
        value = pl.when(hit).then(pl.lit(auroc)).otherwise(value)
    metrics = data.metrics.with_columns(value=value)
    return dataclasses.replace(
        data, metrics=metrics.with_columns(lo=pl.col("value") - 0.01, hi=pl.col("value") + 0.01)
    )


def test_one_cell_names_the_best_with_its_interval(make_data: Make) -> None:
    page = render_study(with_auroc(make_data(cells=ONE), made_up=0.95))
    assert "made_up ranks right answers above wrong ones best: AUROC 0.950 [0.940, 0.960]." in page
    assert "of the 158 with a label, 57.0 % were judged correct" in page


def test_tied_methods_share_the_first_place(make_data: Make) -> None:
    page = render_study(with_auroc(make_data(cells=ONE), sgpu=0.95, made_up=0.95))
    assert "SGPU and made_up rank right answers above wrong ones best" in page or (
        "made_up and SGPU rank right answers above wrong ones best" in page
    )


def test_overlap_of_the_first_two_intervals_is_said(make_data: Make) -> None:
    near = render_study(with_auroc(make_data(cells=ONE), sgpu=0.95, made_up=0.94))
    far = render_study(with_auroc(make_data(cells=ONE), sgpu=0.95, made_up=0.91))
    assert "with 0.940 [0.930, 0.950]; the intervals overlap." in near
    assert "with 0.910 [0.900, 0.920]." in far


def test_a_vote_that_does_as_well_is_said(make_data: Make) -> None:
    near = render_study(with_auroc(make_data(cells=ONE), sgpu=0.95, self_consistency=0.94))
    far = render_study(with_auroc(make_data(cells=ONE), sgpu=0.95, self_consistency=0.92))
    assert "Counting equal answers does about as well here: 0.940 [0.930, 0.950]." in near
    assert "Counting equal answers" not in far


def test_several_cells_are_summed_up_by_the_mean(make_data: Make) -> None:
    page = render_study(with_auroc(make_data(), made_up=0.95))
    assert "made_up has the highest mean AUROC over 2 cells, 0.950; it is ahead, or level, in 2 of 2." in page


def test_rows_of_the_source_that_could_not_be_used_are_counted_first(make_data: Make) -> None:
    stage = StageSummary("import", "own", 40, 13, 27, 0, 0.1, "", False)
    page = render_study(dataclasses.replace(make_data(cells=ONE), stages=[stage]))
    assert "27 of 40 rows of the source could not be used" in page
    assert "Rows not used" in page


def test_few_right_or_wrong_answers_are_said_beside_the_auroc(make_data: Make) -> None:
    many, said = make_data(cells=ONE), "below 30 of each kind the AUROC is uncertain"
    assert said not in render_study(many)
    rows = many.predictions
    ids = [
        rows.filter((pl.col("split") == "test") & (pl.col("label") == kind))["question_id"].unique()
        for kind in (0, 1)
    ]
    kept = [*ids[0].to_list()[:12], *ids[1].to_list()[:12]]
    few = dataclasses.replace(many, predictions=rows.filter(pl.col("question_id").is_in(kept)))
    assert "Only 12 of 24 answers are right; " + said in render_study(few)
