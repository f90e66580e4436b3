"""The three figures of a cell: accuracy against retention, reliability, histogram of probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpu.report.curves import Floats, ReliabilityBin
from sgpu.report.svg import PALETTE

_WIDTH, _HEIGHT = 3.75, 3.1  # inches: 270 points, so that 9-point text is readable on a phone
_POINTS = 200  # a curve is drawn through at most this many of its points
_FONT = 9
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
    curves: Mapping[str, tuple[Floats, Floats]], style: Mapping[str, Stroke], label_rate: float
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
    axes.set_ylim(max(0.0, min(lowest, label_rate) - 0.05), 1.02)
    return figure


def reliability_figure(bins: list[ReliabilityBin]) -> Figure:
    """Share judged correct against mean probability, one point a bin, with the rows of each bin below."""
    figure = _figure()
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.2, 1), "hspace": 0.12})
    for axes in (upper, lower):
        _dress(axes)
    upper.plot([0, 1], [0, 1], color=PALETTE["muted"], linewidth=1, dashes=(4, 3))
    x = [b.mean_probability for b in bins]
    y = [b.accuracy for b in bins]
    upper.vlines(x, x, y, color=PALETTE["accent"], linewidth=1.2, alpha=0.55)
    largest = max((b.count for b in bins), default=1)
    area = [18 + 70 * b.count / largest for b in bins]
    upper.scatter(
        x, y, s=area, color=PALETTE["accent"], edgecolor=PALETTE["surface"], linewidth=0.8, zorder=3
    )
    upper.set_ylim(-0.04, 1.04)
    upper.set_ylabel("Judged correct", **_text())
    centre = [(b.lo + b.hi) / 2 for b in bins]
    lower.bar(centre, [b.count for b in bins], width=0.052, color=PALETTE["accent"], alpha=0.75)
    for b, at in zip(bins, centre, strict=True):
        lower.text(
            at, b.count + 0.04 * largest, str(b.count), ha="center", fontsize=7, color=PALETTE["muted"]
        )
    lower.set_ylim(0, 1.35 * largest)
    lower.set_yticks([])
    lower.set_ylabel("Rows", **_text())
    lower.set_xlim(0, 1)
    lower.set_xlabel("Probability of being right", **_text())
    return figure


def probability_figure(edges: Floats, safe: Floats, unsafe: Floats) -> Figure:
    """How many questions got which probability; unsafe ones stacked on top, hatched."""
    figure, axes = _canvas("Probability of being right", "Questions")
    width = np.diff(edges) * 0.86
    centre = (edges[:-1] + edges[1:]) / 2
    axes.bar(centre, safe, width=width, color=PALETTE["accent"], alpha=0.8)
    flagged = unsafe > 0
    axes.bar(
        centre[flagged],
        unsafe[flagged],
        width=width[flagged],
        bottom=safe[flagged],
        facecolor=PALETTE["surface"],
        edgecolor=PALETTE["unsafe"],
        linewidth=1.1,
        hatch="/////",
    )
    axes.axvline(0.5, color=PALETTE["muted"], linewidth=1, dashes=(4, 3))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.08 * float((safe + unsafe).max()))
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
    axes.set_xlabel(x_label, **_text())
    axes.set_ylabel(y_label, **_text())
    return figure, axes


def _text() -> dict[str, object]:
    return {"fontsize": _FONT, "color": PALETTE["ink"]}


def _dress(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALETTE["muted"])
    axes.tick_params(length=0, labelsize=8, labelcolor=PALETTE["muted"], pad=4)
    axes.grid(axis="y", color=PALETTE["rule"], linewidth=0.7)
    axes.set_axisbelow(True)
