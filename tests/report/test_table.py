"""The one table of reports: what is printed of a number, marks, columns and LaTeX."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sgpu.report.look.latex import escape
from sgpu.report.table import PAPER_COLUMNS, ReportTable, Row, Score, mark_rows, mark_scores


def table(groups: list[str], methods: dict[str, list[Score]]) -> ReportTable:
    columns = tuple(replace(measure, group=group) for group in groups for measure in PAPER_COLUMNS)
    rows = [Row((method,), tuple(scores), "Trained") for method, scores in methods.items()]
    return ReportTable("t", "Title", "Caption.", ("Method",), columns, tuple(mark_rows(rows, columns)))


def marks(*values: float | None, higher: bool = True) -> list[str]:
    return [score.mark for score in mark_scores([Score(value) for value in values], higher)]


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


@pytest.mark.parametrize(("value", "printed"), [(0.7565, "0.757"), (0.2375, "0.238"), (0.70349, "0.703")])
def test_halves_are_printed_rounded_up(value: float, printed: str) -> None:
    assert Score(value).text == printed


@pytest.mark.parametrize(("p", "significant"), [(None, False), (0.049, True), (0.05, False), (0.9, False)])
def test_a_star_needs_a_paired_test_below_the_level(p: float | None, significant: bool) -> None:
    assert Score(0.9, p=p).significant is significant


def test_a_difference_needs_the_same_cells() -> None:
    assert Score(0.9, published=0.8).difference == pytest.approx(0.1)
    assert Score(0.9, published=0.8, comparable=False).difference is None


def test_the_columns_of_one_metric_keep_their_groups_and_scores() -> None:
    values = [Score(base + more) for base in (0.1, 0.2) for more in (0, 0, 0.5)]
    part = table(["m", "n"], {"SE": values}).only("ece")
    assert [column.group for column in part.measures] == ["m", "n"]
    assert [score.value for score in part.scores] == pytest.approx([0.6, 0.7])


def test_special_characters_become_literal() -> None:
    assert escape("a_b & 50% {$x^2$} ~\\#") == (
        r"a\_b \& 50\% \{\$x\textasciicircum{}2\$\} \textasciitilde{}\textbackslash{}\#"
    )


def test_a_name_cannot_break_out_of_its_cell() -> None:
    hostile = "x\\end{table}\n\\input{/etc/passwd}"
    text = table([""], {hostile: [Score(0.5)] * 3, "b": [Score(0.6)] * 3}).latex()
    assert "\\input{" not in text
    assert text.count("\\end{table}") == 1


def test_best_is_bold_second_underlined_and_missing_a_dash() -> None:
    text = table(
        [""], {"a": [Score(0.7), Score(0.7), Score(0.2)], "b": [Score(0.8), Score(None), Score(0.1)]}
    ).latex()
    assert r"a & \underline{0.700} & 0.700 & \underline{0.200} \\" in text
    assert r"b & \textbf{0.800} & -- & \textbf{0.100} \\" in text


def test_a_star_stands_only_where_a_paired_test_is_significant() -> None:
    tested = table(
        [""], {"a": [Score(0.7, p=0.01), Score(0.7, p=0.2), Score(0.2)], "b": [Score(0.8)] * 3}
    ).latex()
    assert r"\underline{0.700}$^{*}$ & \underline{0.700} &" in tested
    assert "paired test" in tested
    assert "paired test" not in table([""], {"a": [Score(0.7)] * 3}).latex()


def test_every_line_of_the_body_has_as_many_columns_as_the_head() -> None:
    text = table(["m_1", "n"], {"a": [Score(0.5)] * 6, "b": [Score(0.6)] * 6}).latex()
    assert r"\begin{tabular}{lcccccc}" in text
    assert r"\multicolumn{3}{c}{m\_1} & \multicolumn{3}{c}{n} \\" in text
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-7}" in text
    body = [line for line in text.splitlines() if re.match(r"(Method|a|b) &", line)]
    assert [line.count("&") for line in body] == [6, 6, 6]


def test_environments_are_closed_and_rules_are_those_of_booktabs() -> None:
    text = table(["m", "n", "o"], {"a": [Score(0.5)] * 9}).latex()
    assert (
        re.findall(r"\\begin\{(\S+?)\}", text)
        == re.findall(r"\\end\{(\S+?)\}", text)[::-1]
        == ["table*", "tabular"]
    )
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert r"\hline" not in text
