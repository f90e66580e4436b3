"""The figure of a small table: its first measure for every row, with interval and published value."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpu.report.look.svg import PALETTE
from sgpu.report.study.study_table import PAPER, StudyTable

_WIDTH = 3.75  # inches, as the other figures of a report: 9-point text stays readable on a phone
_ROW, _MARGIN = 0.25, 0.62
_NAME_CHARACTERS = 22


def table_figure(table: StudyTable) -> Figure:
    """One line a row, in the order of the table: a disc, its interval, and a ring for the published value."""
    measure, rows = table.measures[0], table.ours
    height = _ROW * max(len(rows), 4) + _MARGIN
    figure = Figure(figsize=(_WIDTH, height))
    figure.subplots_adjust(left=0.4, right=0.97, top=1 - 0.06 / height, bottom=0.5 / height)
    axes = figure.subplots()
    for at, row in enumerate(rows):
        value, lo, hi = (row.get(measure.name + end) for end in ("", "_lo", "_hi"))
        if isinstance(lo, float) and isinstance(hi, float):
            axes.plot([lo, hi], [at, at], color=PALETTE["accent"], linewidth=1.6, alpha=0.5)
        if isinstance(value, int | float):
            axes.scatter([value], [at], s=30, color=PALETTE["accent"], linewidth=0, zorder=3)
        paper = row.get(measure.name + PAPER)
        if isinstance(paper, float):
            edge = PALETTE["unsafe"]
            axes.scatter([paper], [at], s=80, facecolor="none", edgecolor=edge, linewidth=1.1, zorder=4)
    finish_dots(axes, _names(table, rows), measure.title)
    return figure


def finish_dots(axes: Axes, names: Sequence[str], label: str) -> None:
    """Names of the rows at the left, the first on top, and a quiet grid behind the dots."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.set_xlabel(label, fontsize=9, color=PALETTE["ink"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.tick_params(axis="y", labelcolor=PALETTE["ink"])
    axes.grid(axis="x", color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)


def _names(table: StudyTable, rows: list[dict[str, object]]) -> list[str]:
    """What tells the rows apart: the keys that are not the same in all of them."""
    telling = [key for key in table.keys if len({row[key] for row in rows}) > 1] or [table.keys[-1]]
    return [" ".join(str(row[key]) for key in telling if row[key]) for row in rows]


def short(name: str) -> str:
    """A name that fits beside the figure, with nothing that matplotlib would read as mathematics."""
    plain = name.replace("$", r"\$")
    return plain if len(plain) <= _NAME_CHARACTERS else f"{plain[: _NAME_CHARACTERS - 1]}…"
