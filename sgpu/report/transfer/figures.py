"""Figures of the report: heat maps of matrices, and points of curves with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sgpu.report.look.svg import PALETTE
from sgpu.report.study.table_figure import short
from sgpu.report.transfer.grids import MEASURES, Grid

_CELL_WIDTH, _CELL_HEIGHT = 0.92, 0.5  # inches
_LEFT, _TOP = 1.75, 0.72
_STRONGEST, _FAINTEST = 0.62, 0.04  # opacity of the best and the worst value
_MARKERS = ("o", "s", "^", "D")  # where there are more lines than colours
_SERIES = [name for name in PALETTE if name.startswith("series-")]


def heat_map(grid: Grid) -> Figure:
    """One box an entry: stronger is better; its value, and the interval beneath."""
    width = _LEFT + _CELL_WIDTH * len(grid.columns) + 0.1
    height = _TOP + _CELL_HEIGHT * len(grid.rows) + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (_LEFT / width, 0.1 / height, 1 - (_LEFT + 0.1) / width, 1 - (_TOP + 0.1) / height)
    )
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(len(grid.rows), 0)
    for i, row in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            _box(axes, grid, row, column, (j, i))
    axes.set_xticks([j + 0.5 for j in range(len(grid.columns))], [_broken(name) for name in grid.columns])
    axes.set_yticks([i + 0.5 for i in range(len(grid.rows))], [short(name) for name in grid.rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=7, labelcolor=PALETTE["ink"], pad=3)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _box(axes: Axes, grid: Grid, row: str, column: str, at: tuple[int, int]) -> None:
    entry = grid.entries.get((row, column))
    value = entry.value if entry else None
    axes.add_patch(
        Rectangle(
            (at[0] + 0.02, at[1] + 0.03), 0.96, 0.94, linewidth=0, facecolor=PALETTE["accent"],
            alpha=_strength(grid.metric, value),
        )
    )  # fmt: skip
    centre = at[0] + 0.5
    ink, muted = PALETTE["ink"], PALETTE["muted"]
    if entry is None or value is None:
        axes.text(centre, at[1] + 0.5, "–", ha="center", va="center", fontsize=8, color=muted)
        return
    axes.text(centre, at[1] + 0.38, entry.text, ha="center", va="center", fontsize=8.5, color=ink)
    axes.text(centre, at[1] + 0.74, entry.interval, ha="center", va="center", fontsize=5.6, color=ink)


def _strength(metric: str, value: float | None) -> float:
    """The opacity of a value, between knowing nothing and the best there is."""
    if value is None:
        return 0.0
    _, _, nothing, best = MEASURES[metric]
    share = min(max((value - nothing) / (best - nothing), 0.0), 1.0)
    return _FAINTEST + (_STRONGEST - _FAINTEST) * share


def _broken(name: str) -> str:
    """A target's name over two lines."""
    return "\n".join(short(part) if len(part) < 17 else f"{short(part[:15])}…" for part in name.split("/"))


def curve_figure(frame: pl.DataFrame, groups: Sequence[str], x_label: str, y_label: str) -> Figure:
    """A line for each group of ``frame``, which has size, value, lo, hi and the groups; with intervals."""
    figure = Figure(figsize=(3.75, 3.1))
    figure.subplots_adjust(left=0.155, right=0.97, top=0.97, bottom=0.155)
    axes = figure.subplots()
    known = frame.drop_nulls("value")
    for i, part in enumerate(known.partition_by(list(groups), maintain_order=True)):
        colour = PALETTE[_SERIES[i % len(_SERIES)]]
        part = part.sort("size")
        x, y = part["size"].to_numpy() + 0.0, part["value"].to_numpy()
        axes.plot(x, y, color=colour, linewidth=1.4, marker=_MARKERS[i // len(_SERIES) % len(_MARKERS)], ms=4)
        axes.vlines(x, part["lo"].to_numpy(), part["hi"].to_numpy(), color=colour, alpha=0.25, linewidth=1)
    axes.set_xlabel(x_label, fontsize=9, color=PALETTE["ink"])
    axes.set_ylabel(y_label, fontsize=9, color=PALETTE["ink"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.grid(axis="y", color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)
    return figure


def legend(frame: pl.DataFrame, groups: Sequence[str]) -> list[tuple[str, str]]:
    """(colour, name) of each line of `curve_figure`."""
    known = frame.drop_nulls("value").select(list(groups)).unique(maintain_order=True)
    return [(_SERIES[i % len(_SERIES)], " · ".join(map(str, row))) for i, row in enumerate(known.iter_rows())]
