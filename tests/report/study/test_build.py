"""The written files: escaped, self-contained, reproducible, complete."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sgpu.errors import DataError
from sgpu.report.study.data import METRIC_COLUMNS, CellRanking, RankedQuestion, ReportData
from sgpu.report.study.page import build_report
from tests.contracts.page_contract import Page, PageContract

Make = Callable[..., ReportData]


@pytest.fixture
def built(tmp_path: Path, make_data: Make) -> str:
    return build_report(tmp_path, make_data()).read_text()


class TestPage(PageContract):
    @pytest.fixture
    def source(self, built: str) -> str:
        return built


def write(tmp_path: Path, data: ReportData) -> str:
    return build_report(tmp_path, data).read_text()


def test_hostile_text_stands_as_text_everywhere(tmp_path: Path, make_data: Make) -> None:
    attack = "</script><img src=x onerror=alert(1)>"
    data = make_data(cells=(("Qwen2.5-0.5B-Instruct", "trivia"),))
    example = dataclasses.replace(
        data.examples[0],
        question=attack,
        references=[attack],
        answers=[attack] * 20,
        probability=0.99,
        label=1,
        unsafe=False,
        model=attack,
        dataset=attack,
    )
    data = dataclasses.replace(
        data,
        study={"name": attack, "note": attack},
        run_info={attack: attack},
        notes=[attack],
        examples=[example],
        metrics=data.metrics.with_columns(model=pl.lit(attack), dataset=pl.lit(attack)),
        predictions=data.predictions.with_columns(model=pl.lit(attack), dataset=pl.lit(attack)),
    )
    source = write(tmp_path, data)
    tags = {tag for tag, _ in Page(source).elements}
    assert not tags & {"script", "img", "iframe", "object", "form"}
    assert f'dir="auto">{html.escape(attack)}</span>' in source  # the answer
    assert source.count(html.escape(attack)) >= 20  # title, notes, names, settings ...


def test_answers_are_shown_as_the_model_wrote_them(built: str) -> None:
    assert "{{ 7 * 7 }} &lt;b&gt;bold&lt;/b&gt;" in built
    assert "القاهرة" in built
    assert "half a surrogate \\ud83d" in built


def test_control_characters_and_overrides_are_made_visible(built: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", built)
    assert "nul␀ bell␇" in built
    assert "⟨U+202E⟩right to left override" in built


def test_same_data_give_the_same_bytes_in_whatever_order_rows_come(tmp_path: Path, make_data: Make) -> None:
    data = make_data()
    shuffled = dataclasses.replace(
        data,
        metrics=data.metrics.sample(fraction=1, shuffle=True, seed=1),
        predictions=data.predictions.sample(fraction=1, shuffle=True, seed=2),
        examples=data.examples[::-1],
    )
    build_report(tmp_path / "a", data)
    build_report(tmp_path / "b", shuffled)
    for name in ("report/index.html", "metrics.csv", "metrics.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_csv_and_parquet_hold_the_same_long_table(tmp_path: Path, make_data: Make) -> None:
    data = make_data(one_class=True)
    build_report(tmp_path, data)
    parquet = pl.read_parquet(tmp_path / "metrics.parquet")
    csv = pl.read_csv(tmp_path / "metrics.csv", schema=parquet.schema)
    assert tuple(parquet.columns) == METRIC_COLUMNS
    assert_frame_equal(csv, parquet)
    assert_frame_equal(parquet, data.metrics.select(METRIC_COLUMNS), check_row_order=False)


def test_undefined_values_are_null_in_the_files_also_where_they_came_as_nan(
    tmp_path: Path, make_data: Make
) -> None:
    data = make_data()
    data = dataclasses.replace(data, metrics=data.metrics.with_columns(value=pl.lit(float("nan"))))
    build_report(tmp_path, data)
    assert pl.read_parquet(tmp_path / "metrics.parquet")["value"].null_count() == data.metrics.height


def test_cell_of_one_class_says_undefined_and_names_no_best_method(tmp_path: Path, make_data: Make) -> None:
    cell = (("Qwen2.5-0.5B-Instruct", "trivia"),)
    page = Page(write(tmp_path, make_data(cells=cell, one_class=True)))
    assert "No method has a defined AUROC." in page.text
    assert page.text.count("undefined") >= 6


def test_unavailable_method_is_listed_with_its_reason(built: str) -> None:
    assert "not available: no token log-probabilities" in built


def test_missing_labels_and_missing_confidences_are_counted(tmp_path: Path, make_data: Make) -> None:
    text = Page(write(tmp_path, make_data(cells=(("m", "trivia"),)))).text
    assert "2 without a label and left out" in text
    assert "6 missing" in text  # five without a confidence and one more without a label


def test_quarantine_shows_fifty_rows_and_counts_all(built: str) -> None:
    assert "62 rows could not be processed; the first 50 are listed" in Page(built).text
    assert "q0049" in built
    assert "q0050" not in built


def test_report_without_test_rows_draws_no_figure_and_says_why(tmp_path: Path, make_data: Make) -> None:
    data = make_data()
    train = data.predictions.with_columns(split=pl.lit("train"))
    text = Page(write(tmp_path, dataclasses.replace(data, predictions=train))).text
    assert "No test question has both a label and a confidence." in text
    assert "No test question has a probability." in text
    assert "0 test questions" in text


def test_report_of_nothing_at_all_is_still_a_page(tmp_path: Path, make_data: Make) -> None:
    data = make_data()
    empty = ReportData({}, {}, data.metrics.clear(), data.predictions.clear())
    text = Page(write(tmp_path, empty)).text
    assert "Nothing was measured" in text
    assert pl.read_csv(tmp_path / "metrics.csv").height == 0


def test_label_free_cell_shows_probabilities_but_no_reliability(tmp_path: Path, make_data: Make) -> None:
    data = make_data(cells=(("m", "trivia"),))
    unlabelled = data.predictions.with_columns(label=pl.lit(None, dtype=pl.Int8))
    text = Page(write(tmp_path, dataclasses.replace(data, predictions=unlabelled))).text
    assert "No test question has both a label and a probability." in text
    assert "160 test questions, 15 of them unsafe" in text


def test_absent_column_is_named(make_data: Make) -> None:
    data = make_data()
    with pytest.raises(DataError, match="the predictions frame has no column sd"):
        dataclasses.replace(data, predictions=data.predictions.drop("sd"))


def test_ranked_questions_stand_as_text_and_replace_what_needs_labels(
    tmp_path: Path, make_data: Make
) -> None:
    data = make_data()
    (model, dataset), other = data.cells()[0], data.cells()[1]
    row = RankedQuestion(
        question_id="q<b>", question="<script>1</script>", answer="{{ 7 }}",
        times=2, n=5, scores={"spectral_entropy": 0.25, "self_consistency": None},
    )  # fmt: skip
    ranking = CellRanking(model, dataset, "No labels.", [row], frozenset({"spectral_entropy"}))
    page = write(tmp_path, dataclasses.replace(data, rankings=[ranking]))
    assert "&lt;script&gt;1&lt;/script&gt;" in page and "<script" not in page and "{{ 7 }}" in page
    assert page.count("Accuracy against retention") == 1  # of the other cell, which has labels
    assert other in data.cells() and "0.250" in page
