"""Text and tables for LaTeX: booktabs only, names escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}


def escape(text: str) -> str:
    """``text`` with LaTeX's special characters made literal and control characters made spaces."""
    plain = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    return "".join(_SPECIAL.get(character, character) for character in plain)


def booktabs(
    name: str,
    caption: str,
    heads: Sequence[str],
    blocks: Iterable[tuple[str, Sequence[Sequence[str]]]],
    n_names: int = 1,
    *,
    groups: Sequence[tuple[str, int]] = (),
    page_wide: bool = False,
) -> str:
    """A ``table`` environment of cells that are LaTeX already; the first ``n_names`` columns are names.

    ``blocks`` are rows under a heading, or under none. ``groups``: names above the columns of numbers, each
    with its number of columns. ``page_wide``: over both columns of a page, in small type.
    """
    width, float_name = len(heads), "table*" if page_wide else "table"
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{float_name}}}[t]",
        r"\centering",
        *([r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"] if page_wide else []),
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{name}}}",
        rf"\begin{{tabular}}{{{'l' * n_names}{'c' * (width - n_names)}}}",
        r"\toprule",
        *_group_heads(groups, n_names),
        " & ".join(heads) + r" \\",
    ]
    for title, rows in blocks:
        lines.append(r"\midrule")
        lines += [rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape(title)}}}}} \\"] if title else []
        lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\end{{{float_name}}}"]
    return "\n".join(lines) + "\n"


def _group_heads(groups: Sequence[tuple[str, int]], n_names: int) -> list[str]:
    """A line of group names over their columns, with a rule under each; nothing where none has a name."""
    if not any(group for group, _ in groups):
        return []
    heads, rules, at = [""] * n_names, [], n_names + 1
    for group, width in groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [" & ".join(heads) + r" \\", " ".join(rules)]
