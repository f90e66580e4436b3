"""A table as LaTeX: booktabs only, names escaped."""

from __future__ import annotations

from sgpu.report.aggregate.tables import Entry, Table
from sgpu.report.look.latex import escape
from sgpu.report.look.numbers import decimals
from sgpu.report.study.leaderboard import Mark

_WRAP: dict[Mark, str] = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
_WIDE = 6  # columns of numbers: more than these span the page


def to_latex(table: Table) -> str:
    """A ``table`` environment: best bold, second underlined, a star where a paired test is significant."""
    width = len(table.columns)
    float_name = "table*" if width > _WIDE else "table"
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{float_name}}}[t]",
        r"\centering",
        *([r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"] if width > _WIDE else []),
        rf"\caption{{{escape(table.title)}. {escape(table.caption)} {_legend(table)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'c' * width}}}",
        r"\toprule",
        *_group_heads(table),
        " & ".join(["Method", *(_head(c.metric.title, c.metric.higher_is_better) for c in table.columns)])
        + r" \\",
    ]
    for block in table.blocks:
        lines += [r"\midrule", rf"\multicolumn{{{width + 1}}}{{l}}{{\emph{{{escape(block.title)}}}}} \\"]
        lines += [
            " & ".join([escape(row.method), *(_number(entry) for entry in row.entries)]) + r" \\"
            for row in block.rows
        ]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\end{{{float_name}}}"]
    return "\n".join(lines) + "\n"


def _legend(table: Table) -> str:
    star = r" $^{*}$: significant in a paired test within the cell." if table.tested else ""
    return r"\textbf{Bold}: best; \underline{underlined}: second." + star


def _head(title: str, higher_is_better: bool) -> str:
    return rf"{title}$\{'uparrow' if higher_is_better else 'downarrow'}$"


def _group_heads(table: Table) -> list[str]:
    """A line of group names over their columns, with a rule under each."""
    if not any(group for group, _ in table.groups):
        return []
    heads, rules, at = [""], [], 2
    for group, width in table.groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [" & ".join(heads) + r" \\", " ".join(rules)]


def _number(entry: Entry) -> str:
    if entry.score.value is None:
        return "--"
    star = "$^{*}$" if entry.significant else ""
    return _WRAP[entry.score.mark] % decimals(entry.score.value) + star
