"""The three figures of a cell: accuracy against retention, reliability, histogram of probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpu.evaluation.auarc import RetentionCurve
from sgpu.evaluation.calibration import ReliabilityCurve
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.metrics import BINS
from sgpu.report.look.svg import PALETTE

_WIDTH, _HEIGHT = 3.75, 3.1  # inches: 270 points, so that 9-point text is readable on a phone
_POINTS = 200  # a curve is drawn through at most this many of its points
_FONT = 9
_HISTOGRAM_BINS = 20
_DASHES = ((), (6, 2), (2, 2), (7, 2, 2, 2))
_SERIES = [name for name in PALETTE if name.startswith("series-")]


@dataclass(frozen=True)
class Stroke:
    """How a method is drawn, in every figure and legend: a PALETTE name, a dash pattern, a width."""

    colour: str
    dashes: tuple[float, ...]
    width: float


def strokes(methods: Iterable[str], primary: str) -> dict[str, Stroke]:
    """One stroke a method: the primary is solid, wide and in the accent colour."""
    others = [method for method in sorted(methods) if method != primary]
    drawn = {primary: Stroke("accent", (), 2.6)}
    for i, method in enumerate(others):
        dashes = _DASHES[(i % len(_SERIES) + i // len(_SERIES)) % len(_DASHES)]
        drawn[method] = Stroke(_SERIES[i % len(_SERIES)], dashes, 1.4)
    return drawn


def retention_figure(
    curves: Mapping[str, RetentionCurve], style: Mapping[str, Stroke], label_rate: float
) -> Figure:
    """Accuracy of the most confident share of the questions, one line a method."""
    figure, axes = _canvas("Share of questions kept, most confident first", "Judged correct among them")
    axes.axhline(label_rate, color=PALETTE["muted"], linewidth=1, dashes=(1, 2))
    # The primary is drawn last, over the others.
    for method in sorted(curves, key=lambda name: (style[name].width, name)):
        kept, accuracy = curves[method]
        chosen = np.unique(np.linspace(0, len(kept) - 1, _POINTS).round().astype(int))
        stroke = style[method]
        axes.plot(
            kept[chosen],
            accuracy[chosen],
            color=PALETTE[stroke.colour],
            linewidth=stroke.width,
            dashes=stroke.dashes or (None, None),
            solid_capstyle="round",
        )
    lowest = min((float(accuracy.min()) for _, accuracy in curves.values()), default=0.0)
    axes.set_xlim(0, 1)
    # Never less than a third of the range: a hair of a difference must not fill the figure.
    axes.set_ylim(max(0.0, min(lowest - 0.05, label_rate - 0.05, 0.68)), 1.02)
    return figure


def reliability_figure(curve: ReliabilityCurve) -> Figure:
    """Share judged correct against mean probability, one point a bin, with the rows of each bin below."""
    figure = _figure()
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.2, 1), "hspace": 0.12})
    for axes in (upper, lower):
        _dress(axes)
    accent, muted = PALETTE["accent"], PALETTE["muted"]
    largest = int(curve.n_rows.max())
    x, y = curve.probability, curve.accuracy
    upper.plot([0, 1], [0, 1], color=muted, linewidth=1, dashes=(4, 3))
    upper.vlines(x, x, y, color=accent, linewidth=1.2, alpha=0.55)
    area = 18 + 70 * curve.n_rows / largest
    upper.scatter(x, y, s=area, color=accent, edgecolor=PALETTE["surface"], linewidth=0.8, zorder=3)
    upper.set_ylim(-0.04, 1.04)
    centre = curve.upper - 0.5 / BINS
    lower.bar(centre, curve.n_rows, width=0.78 / BINS, color=accent, alpha=0.75)
    for at, rows in zip(centre, curve.n_rows, strict=True):
        lower.text(at, rows + 0.04 * largest, str(rows), ha="center", fontsize=7, color=muted)
    lower.set_ylim(0, 1.35 * largest)
    lower.set_yticks([])
    lower.set_xlim(0, 1)
    _name_axes(upper, "", "Judged correct")
    _name_axes(lower, "Probability of being right", "Rows")
    return figure


def probability_figure(probability: Floats, unsafe: Bools) -> Figure:
    """How many of (Q,) rows got which probability; unsafe ones stacked on top, hatched."""
    figure, axes = _canvas("Probability of being right", "Questions")
    edges = np.linspace(0, 1, _HISTOGRAM_BINS + 1)
    safe, _ = np.histogram(probability[~unsafe], edges)
    flagged, _ = np.histogram(probability[unsafe], edges)
    centre, width = edges[:-1] + 0.5 / _HISTOGRAM_BINS, 0.86 / _HISTOGRAM_BINS
    axes.bar(centre, safe, width=width, color=PALETTE["accent"], alpha=0.8)
    some = flagged > 0
    axes.bar(
        centre[some],
        flagged[some],
        width=width,
        bottom=safe[some],
        facecolor=PALETTE["surface"],
        edgecolor=PALETTE["unsafe"],
        linewidth=1.1,
        hatch="/////",
    )
    axes.axvline(0.5, color=PALETTE["muted"], linewidth=1, dashes=(4, 3))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.08 * int((safe + flagged).max()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    return figure


def _figure() -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    figure.subplots_adjust(left=0.155, right=0.97, top=0.97, bottom=0.155)
    return figure


def _canvas(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = _figure()
    axes = figure.subplots()
    _dress(axes)
    _name_axes(axes, x_label, y_label)
    return figure, axes


def _name_axes(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label, fontsize=_FONT, color=PALETTE["ink"])
    axes.set_ylabel(y_label, fontsize=_FONT, color=PALETTE["ink"])


def _dress(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.grid(axis="y", color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)
