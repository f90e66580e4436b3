"""The table of one classifier for any number of answers."""

from __future__ import annotations

from xml.etree import ElementTree

import polars as pl
import pytest
from matplotlib.axes import Axes

from sgpu.report.study.data import ReportData
from sgpu.report.study.figures import any_size_figure
from sgpu.report.study.page import render_study
from sgpu.report.study.study_table import study_table
from sgpu.report.study.study_tables import any_size_frame, table_views
from sgpu.report.table import ReportTable


def metrics(model: str, setting: str, method: str, auroc: float) -> list[dict[str, object]]:
    base = {"kind": "n_answers", "setting": setting, "dataset": "d", "model": model, "method": method}
    return [
        {**base, "metric": "auroc", "value": auroc, "lo": auroc - 0.1, "hi": auroc + 0.1, "n": 50},
        {**base, "metric": "ece", "value": 0.05, "lo": 0.0, "hi": 0.1, "n": 50},
    ]


def any_size_table(sensitivity: pl.DataFrame) -> ReportTable:
    return study_table("any_size", any_size_frame(sensitivity))


def both(model: str, setting: str, fitted: float, one: float) -> list[dict[str, object]]:
    return metrics(model, setting, "sgpu", fitted) + metrics(model, setting, "sgpu_any_size", one)


def test_both_classifiers_stand_beside_each_other_for_every_number() -> None:
    table = any_size_table(pl.DataFrame([*both("m", "20", 0.8, 0.81), *both("m", "5", 0.7, 0.72)]))
    rows = [(*row.names, row.scores[0].value, row.scores[0].lo) for row in table.rows]
    assert rows == [
        ("5", "fitted to this number", 0.7, pytest.approx(0.6)),
        ("5", "one for any number", 0.72, pytest.approx(0.62)),
        ("20", "fitted to this number", 0.8, pytest.approx(0.7)),
        ("20", "one for any number", 0.81, pytest.approx(0.71)),
    ]


def test_several_cells_give_their_mean_and_the_mean_of_their_intervals() -> None:
    table = any_size_table(pl.DataFrame([*both("m", "5", 0.6, 0.6), *both("other", "5", 0.8, 0.9)]))
    auroc = [row.scores[0] for row in table.rows]
    assert [score.value for score in auroc] == pytest.approx([0.7, 0.75])
    assert [score.lo for score in auroc] == pytest.approx([0.6, 0.65])
    assert [score.hi for score in auroc] == pytest.approx([0.8, 0.85])
    assert [row.scores[2].value for row in table.rows] == [2, 2]


def test_where_a_cell_has_no_interval_the_mean_has_none() -> None:
    rows = [*both("m", "5", 0.6, 0.6), *both("other", "5", 0.8, 0.9)]
    rows[0] |= {"lo": None, "hi": None}
    ends = [row.scores[0].lo for row in any_size_table(pl.DataFrame(rows)).rows]
    assert ends == [None, pytest.approx(0.65)]


def drawn(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """By its name in the legend each line's numbers, to the nearest whole one, and values."""
    return {
        str(line.get_label()): ([round(x) for x in line.get_xdata()], list(line.get_ydata()))
        for line in axes.lines
    }


def bars(axes: Axes) -> list[list[tuple[float, float]]]:
    """The ends of the intervals, a list for each line."""
    return [[(part[0, 1], part[1, 1]) for part in lines.get_segments()] for lines in axes.collections]


def test_the_figure_has_a_line_with_intervals_for_each_classifier_over_the_numbers() -> None:
    rows = [*both("m", "20", 0.8, 0.81), *both("m", "5", 0.7, 0.72), *both("m", "10", 0.75, 0.76)]
    auroc, ece = any_size_figure(any_size_table(pl.DataFrame(rows))).axes
    assert drawn(auroc) == {
        "fitted to this number": ([5, 10, 20], [0.7, 0.75, 0.8]),
        "one for any number": ([5, 10, 20], [0.72, 0.76, 0.81]),
    }
    assert bars(auroc)[1] == [pytest.approx((v - 0.1, v + 0.1)) for v in (0.72, 0.76, 0.81)]
    assert bars(ece) == [[(0.0, 0.1)] * 3] * 2
    assert (auroc.get_ylabel(), ece.get_ylabel()) == ("AUROC", "ECE")
    strokes = {(line.get_linestyle(), line.get_marker(), line.get_color()) for line in auroc.lines}
    assert all(len(set(part)) == 2 for part in zip(*strokes, strict=True))  # told apart without colour too


def test_a_number_without_a_value_breaks_nothing() -> None:
    rows = [*both("m", "20", 0.8, 0.81), *both("m", "5", 0.7, 0.72)]
    rows[0] |= {"value": None, "lo": None, "hi": None}
    auroc, _ = any_size_figure(any_size_table(pl.DataFrame(rows))).axes
    assert drawn(auroc)["fitted to this number"] == ([5], [0.7])
    assert drawn(auroc)["one for any number"] == ([5, 20], [0.72, 0.81])


def test_the_page_holds_the_figure_as_one_named_picture_without_scripts(full_data: ReportData) -> None:
    views = table_views(full_data)
    page = render_study(full_data, tables=views)
    (picture,) = [picture for table, picture in views if table.name == "any_size"]
    assert picture.markup is not None and picture.markup in page and "<script" not in picture.markup
    svg = ElementTree.fromstring(picture.markup)
    assert (svg.get("role"), svg.find("title").text) == ("img", svg.get("aria-label"))  # type: ignore[union-attr]
    assert "AUROC and ECE over 5, 10, 20 answers a question" in str(svg.get("aria-label"))
    texts = {"".join(text.itertext()) for text in svg.iter("text")}
    assert {"fitted to this number", "one for any number", "AUROC", "ECE", "Answers a question"} <= texts


def test_a_cell_with_one_of_the_two_is_left_out() -> None:
    rows = [*both("m", "5", 0.6, 0.6), *metrics("other", "5", "sgpu", 0.9)]
    assert [row.scores[2].value for row in any_size_table(pl.DataFrame(rows)).rows] == [1, 1]


def test_a_study_that_varies_nothing_has_no_such_table() -> None:
    empty = pl.DataFrame(both("m", "5", 0.6, 0.6)).clear()
    assert any_size_table(empty).rows == ()
