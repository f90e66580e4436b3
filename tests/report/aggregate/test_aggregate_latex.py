from __future__ import annotations

import re

from sgpu.report.aggregate.tables import (
    Block,
    GroupedMeasure,
    MethodTable,
    Value,
    columns_for,
    ranked_rows,
    to_latex,
)
from sgpu.report.look.latex import escape


def table(groups: list[str], methods: dict[str, list[Value]]) -> MethodTable:
    columns = columns_for(groups)

    def look_up(method: str, column: GroupedMeasure) -> Value:
        return methods[method][columns.index(column)]

    return MethodTable(
        "t",
        "Title",
        "Caption.",
        columns,
        (Block("Trained", tuple(ranked_rows(list(methods), columns, look_up))),),
    )


def test_special_characters_become_literal() -> None:
    assert escape("a_b & 50% {$x^2$} ~\\#") == (
        r"a\_b \& 50\% \{\$x\textasciicircum{}2\$\} \textasciitilde{}\textbackslash{}\#"
    )


def test_a_name_cannot_break_out_of_its_cell() -> None:
    hostile = "x\\end{table}\n\\input{/etc/passwd}"
    text = to_latex(table([""], {hostile: [Value(0.5)] * 3, "b": [Value(0.6)] * 3}))
    assert "\\input{" not in text
    assert text.count("\\end{table}") == 1


def test_best_is_bold_second_underlined_and_missing_a_dash() -> None:
    text = to_latex(
        table([""], {"a": [Value(0.7), Value(0.7), Value(0.2)], "b": [Value(0.8), Value(None), Value(0.1)]})
    )
    assert r"a & \underline{0.700} & 0.700 & \underline{0.200} \\" in text
    assert r"b & \textbf{0.800} & -- & \textbf{0.100} \\" in text


def test_a_star_stands_only_where_a_paired_test_is_significant() -> None:
    tested = to_latex(
        table([""], {"a": [Value(0.7, p=0.01), Value(0.7, p=0.2), Value(0.2)], "b": [Value(0.8)] * 3})
    )
    assert r"\underline{0.700}$^{*}$ & \underline{0.700} &" in tested
    assert "paired test" in tested
    assert "paired test" not in to_latex(table([""], {"a": [Value(0.7)] * 3}))


def test_every_line_of_the_body_has_as_many_columns_as_the_head() -> None:
    text = to_latex(table(["m_1", "n"], {"a": [Value(0.5)] * 6, "b": [Value(0.6)] * 6}))
    assert r"\begin{tabular}{lcccccc}" in text
    assert r"\multicolumn{3}{c}{m\_1} & \multicolumn{3}{c}{n} \\" in text
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-7}" in text
    body = [line for line in text.splitlines() if re.match(r"(Method|a|b) &", line)]
    assert [line.count("&") for line in body] == [6, 6, 6]


def test_environments_are_closed_and_rules_are_those_of_booktabs() -> None:
    text = to_latex(table(["m", "n", "o"], {"a": [Value(0.5)] * 9}))
    assert (
        re.findall(r"\\begin\{(\S+?)\}", text)
        == re.findall(r"\\end\{(\S+?)\}", text)[::-1]
        == ["table*", "tabular"]
    )
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert r"\hline" not in text
