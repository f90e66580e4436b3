"""Figures of the daily page: probabilities against their references, and small charts over the days."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sgpu.evaluation.inputs import Floats
from sgpu.report.daily.trail import Line
from sgpu.report.look.svg import PALETTE
from sgpu.watch.verdict import Level

# A level has a colour and a shape, here and beside its word: ring, diamond, triangle, square.
COLOURS: Mapping[Level, str] = {
    "green": "series-5", "grey": "muted", "yellow": "series-3", "red": "series-6",
}  # fmt: skip
SHAPES: Mapping[Level, str] = {"green": "o", "grey": "D", "yellow": "^", "red": "s"}
_BINS = 25  # of the figure: two of the sketch's fifty each


def probability_figure(today: Floats, references: Mapping[str, Floats]) -> Figure:
    """Shares of rows by probability: today as bars, each reference (name -> counts (50,)) as a line."""
    figure = Figure(figsize=(10.4, 3.1))
    figure.subplots_adjust(left=0.055, right=0.99, top=0.965, bottom=0.15)
    axes = figure.subplots()
    _dress(axes)
    edges = np.linspace(0, 1, _BINS + 1)
    axes.bar(edges[:-1], _shares(today), width=0.9 / _BINS, align="edge", color=PALETTE["accent"], alpha=0.55)
    for name, dashes in (("history", "solid"), ("training", (0, (4, 2)))):
        if name in references:
            colour = PALETTE[REFERENCE_COLOURS[name]]
            axes.stairs(_shares(references[name]), edges, color=colour, linewidth=1.7, linestyle=dashes)
    axes.axvline(0.5, color=PALETTE["muted"], linewidth=1, dashes=(1, 2))
    axes.set_xlim(0, 1)
    axes.set_xlabel("Probability of being right", fontsize=9, color=PALETTE["ink"])
    axes.set_ylabel("Share of rows", fontsize=9, color=PALETTE["ink"])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    return figure


REFERENCE_COLOURS = {"history": "ink", "training": "series-2"}


def trail_figure(line: Line) -> Figure:
    """A value over the days; a day without a run is a gap. Today's mark is larger."""
    figure = Figure(figsize=(3.75, 1.75))
    figure.subplots_adjust(left=0.17, right=0.965, top=0.94, bottom=0.16)
    axes = figure.subplots()
    _dress(axes)
    x = np.arange(len(line.days)) - (len(line.days) - 1)
    y = np.array([np.nan if value is None else value for value in line.values])
    axes.plot(x, y, color=PALETTE["muted"], linewidth=1.2)
    for level, shape in SHAPES.items():
        chosen = np.array([one == level for one in line.levels])
        size = np.where(x == 0, 42, 13)[chosen]
        axes.scatter(
            x[chosen], y[chosen], s=size, marker=shape, color=PALETTE[COLOURS[level]], linewidth=0, zorder=3
        )
    unjudged = np.array([one is None for one in line.levels])
    axes.scatter(x[unjudged], y[unjudged], s=10, color=PALETTE["muted"], linewidth=0, zorder=3, clip_on=False)
    axes.set_xlim(x[0] - 0.8, 1.2)
    ticks = [i for i in range(len(x)) if (len(x) - 1 - i) % 7 == 0]
    axes.set_xticks([x[i] for i in ticks], [f"{line.days[i].day} {line.days[i]:%b}" for i in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: line.shown(value)))
    _range(axes, y, line.most)
    return figure


def _range(axes: Axes, y: Floats, most: float | None) -> None:
    """Never so narrow that a hair of a difference fills the figure."""
    known = y[np.isfinite(y)]
    if not known.size:
        return
    low, high = float(known.min()), float(known.max())
    room = max(0.15 * (high - low), 0.1 * abs(high), 1e-3)
    # A hair above what is possible, so that marks there are not cut.
    top = high + room if most is None else min(high + room, 1.015 * most)
    axes.set_ylim(0.0 if low - room < 0 or low < 0.25 * high else low - room, top)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))


def _shares(counts: Floats) -> Floats:
    wide = counts.reshape(_BINS, -1).sum(axis=1)
    return np.asarray(wide / max(wide.sum(), 1.0))


def _dress(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.grid(axis="y", color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)
