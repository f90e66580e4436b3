"""The figures of a study: three of each cell, one of each small table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpu.evaluation.calibration import ReliabilityCurve
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.metrics import BINS
from sgpu.evaluation.ranking import RetentionCurve
from sgpu.report.look.svg import PALETTE, SERIES, blank, canvas, dress
from sgpu.report.table import Measure, ReportTable, Score

_POINTS = 200  # a curve is drawn through at most this many of its points
_HISTOGRAM_BINS = 20
_DASHES = ((), (6, 2), (2, 2), (7, 2, 2, 2))


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
        dashes = _DASHES[(i % len(SERIES) + i // len(SERIES)) % len(_DASHES)]
        drawn[method] = Stroke(SERIES[i % len(SERIES)], dashes, 1.4)
    return drawn


def retention_figure(
    curves: Mapping[str, RetentionCurve], style: Mapping[str, Stroke], label_rate: float
) -> Figure:
    """Accuracy of the most confident share of the questions, one line a method."""
    figure, axes = canvas("Share of questions kept, most confident first", "Judged correct among them")
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
    figure = blank()
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.2, 1), "hspace": 0.12})
    dress(upper, "", "Judged correct")
    dress(lower, "Probability of being right", "Rows")
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
    return figure


def probability_figure(probability: Floats, unsafe: Bools) -> Figure:
    """How many of (Q,) rows got which probability; unsafe ones stacked on top, hatched."""
    figure, axes = canvas("Probability of being right", "Questions")
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


_ROW, _MARGIN = 0.25, 0.62  # inches
_NAME_CHARACTERS = 22


def table_figure(table: ReportTable) -> Figure:
    """One line a row, in the order of the table: a disc, its interval, and a ring for the published value.

    Rows are named by the keys that are not the same in all of them.
    """
    names = [row.names for row in table.rows]
    telling = [i for i in range(len(table.keys)) if len({name[i] for name in names}) > 1] or [-1]
    rows = [(" ".join(row.names[i] for i in telling if row.names[i]), row.scores[0]) for row in table.rows]
    return dot_figure(rows, table.measures[0].title)


def dot_figure(
    rows: Sequence[tuple[str, Score]], label: str, cells: Mapping[str, Sequence[float]] | None = None
) -> Figure:
    """Draw a disc with its interval for each named score, and the published value as a ring.

    The first score is on top. ``cells`` are single values by name, drawn as small dots.
    """
    left, size = (0.4, 30) if cells is None else (0.32, 34)
    height = _ROW * max(len(rows), 4) + _MARGIN
    top, bottom = 1 - 0.06 / height, 0.5 / height
    figure, axes = canvas(label, grid="x", height=height, left=left, top=top, bottom=bottom)
    axes.set_yticks(range(len(rows)), [short(name) for name, _ in rows])
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.tick_params(axis="y", labelcolor=PALETTE["ink"])
    for at, (name, score) in enumerate(rows):
        if cells is not None:
            single = cells.get(name, ())
            axes.scatter(single, [at] * len(single), s=9, color=PALETTE["muted"], alpha=0.35, linewidth=0)
        if score.lo is not None and score.hi is not None:
            axes.plot([score.lo, score.hi], [at, at], color=PALETTE["accent"], linewidth=1.6, alpha=0.5)
        if score.value is not None:
            axes.scatter([score.value], [at], s=size, color=PALETTE["accent"], linewidth=0, zorder=3)
        if score.published is not None:
            axes.scatter(
                [score.published], [at], s=80, facecolor="none", edgecolor=PALETTE["unsafe"], linewidth=1.1,
                zorder=4,
            )  # fmt: skip
    return figure


def short(name: str) -> str:
    """A name that fits beside the figure, with nothing that matplotlib would read as mathematics."""
    plain = name.replace("$", r"\$")
    return plain if len(plain) <= _NAME_CHARACTERS else f"{plain[: _NAME_CHARACTERS - 1]}…"


CLASSIFIERS = {"sgpu": "fitted to this number", "sgpu_any_size": "one for any number"}
# Told apart without colour too: line, marker, colour.
_STROKES = dict(zip(CLASSIFIERS.values(), (("-", "o", "accent"), ("--", "s", "series-2")), strict=True))
_APART = 0.012  # of the range of N, by which the two are moved aside: their intervals would hide each other


def any_size_figure(table: ReportTable) -> Figure:
    """AUROC above ECE over the number of answers, a line for each classifier, with intervals."""
    figure = blank(4.1, top=0.87, bottom=0.115, hspace=0.12)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, measure in zip(panels, table.measures, strict=False):
        for side, name in ((-1, "fitted to this number"), (1, "one for any number")):
            _draw_classifier(axes, table, measure, name, side)
        dress(axes, "", measure.title)
    numbers = _answer_counts(table)
    panels[-1].set_xticks(numbers, [f"{number:g}" for number in numbers])
    panels[-1].set_xlabel("Answers a question", fontsize=9, color=PALETTE["ink"])
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.13, 1.0), frameon=False,
        fontsize=8, labelcolor=PALETTE["ink"], handlelength=3, borderaxespad=0.2, labelspacing=0.3,
    )  # fmt: skip
    return figure


def any_size_in_words(table: ReportTable) -> str:
    """What is read aloud in place of the figure."""
    numbers = ", ".join(f"{number:g}" for number in _answer_counts(table))
    return (
        f"{table.title}: AUROC and ECE over {numbers} answers a question, a line for classifiers fitted to "
        "each number and a line for one classifier of any number. The table above has the values."
    )


def _answer_counts(table: ReportTable) -> list[float]:
    return sorted({float(row.names[0]) for row in table.rows})


def _draw_classifier(axes: Axes, table: ReportTable, measure: Measure, name: str, side: int) -> None:
    ends = [measure.name, f"{measure.name}_lo", f"{measure.name}_hi"]
    own = (
        table.frame.filter(pl.col("classifier") == name)
        .select(pl.col("n_samples").cast(pl.Float64).alias("n"), *ends)
        .drop_nulls(measure.name)
        .sort("n")
    )
    numbers = _answer_counts(table)
    at = own["n"].to_numpy() + side * _APART * (numbers[-1] - numbers[0])
    dashes, marker, tone = _STROKES[name]
    colour = PALETTE[tone]
    axes.plot(
        at, own[ends[0]], color=colour, linestyle=dashes, marker=marker, ms=4.5, linewidth=1.5, label=name
    )
    axes.vlines(at, own[ends[1]], own[ends[2]], color=colour, linewidth=1.2, alpha=0.6)
