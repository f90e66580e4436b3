"""Text and tables for LaTeX: booktabs only, names escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    name: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], n_names: int
) -> str:
    """A ``table`` environment of cells that are LaTeX already; the first ``n_names`` columns are names."""
    width = len(heads)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{name}}}",
        rf"\begin{{tabular}}{{{'l' * n_names}{'c' * (width - n_names)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
