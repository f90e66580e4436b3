"""Figures of the daily page: probabilities against their references, and values over the days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sgpu.evaluation.inputs import Floats
from sgpu.report.daily.counts import mean_probability
from sgpu.report.look import numbers
from sgpu.report.look.svg import PALETTE, canvas
from sgpu.watch.comparisons import PSI
from sgpu.watch.history import PastDay
from sgpu.watch.metrics import largest_effect
from sgpu.watch.verdict import Level


@dataclass(frozen=True)
class TrendLine:
    """One value over the days, oldest first, today last. ``shown`` writes a value, ``most`` bounds it."""

    name: str
    title: str
    days: tuple[date, ...]
    values: tuple[float | None, ...]
    levels: tuple[Level | None, ...]
    shown: Callable[[float | None], str]
    remark: str = ""
    most: float | None = None


Read = Callable[[PastDay], float | None]
Write = Callable[[float | None], str]


_count = partial(numbers.dash, write=lambda rows: numbers.count(round(rows)))
_share = partial(numbers.dash, write=numbers.percent)
_decimals = partial(numbers.dash, write=numbers.decimals)


def _of(rows: int, of: int) -> float | None:
    return rows / of if of else None


# name, title, value of a day, how it is written, what it is of
LINES: tuple[tuple[str, str, Read, Write, str], ...] = (
    ("scores", "Scored requests",
     lambda day: float(day.sketch.rows), _count, "all of the day that are in the table"),
    ("scoreable", "Scoreable share",
     lambda day: day.accounting.scoreable_share, _share, "of the requests that carry an answer"),
    ("quarantined", "Quarantined share",
     lambda day: _of(day.accounting.quarantined, day.accounting.rows_in), _share, "of all rows of the logs"),
    ("probability", "Mean probability",
     lambda day: mean_probability([*day.sketch.groups.values()]), _decimals, "of being right"),
    ("unsafe", "Unsafe share",
     lambda day: _of(sum(group.counts["unsafe"] for group in day.sketch.groups.values()), day.sketch.rows),
     _share, "of the scored requests"),
    ("psi", "Largest stability index",
     lambda day: largest_effect(day.verdict, PSI, "history") if day.verdict else None,
     _decimals, "of a model and route against its past"),
)  # fmt: skip


def lines(today: PastDay, past: tuple[PastDay, ...], days: int) -> list[TrendLine]:
    """Every value that is followed over the days."""
    by_day = {day.day: day for day in (*past, today)}
    shown = tuple(today.day - timedelta(days=back) for back in range(days, -1, -1))
    verdicts = [by_day[day].verdict if day in by_day else None for day in shown]
    levels = tuple(verdict.level if verdict else None for verdict in verdicts)
    return [
        TrendLine(
            name, title, shown, tuple(read(by_day[day]) if day in by_day else None for day in shown), levels,
            write, remark, None if write is _count or name == "psi" else 1.0,
        )
        for name, title, read, write, remark in LINES
    ]  # fmt: skip


def tabulate_trends(made: list[TrendLine]) -> list[tuple[date, Level | None, tuple[str, ...]]]:
    """Return the lines as a row per day (day, level, values), newest first; no level without a run."""
    written = zip(*([line.shown(value) for value in line.values] for line in made), strict=True)
    return [*zip(made[0].days, made[0].levels, written, strict=True)][::-1]


# A level has a colour and a shape, here and beside its word: ring, diamond, triangle, square.
COLOURS: Mapping[Level, str] = {
    "green": "series-5", "grey": "muted", "yellow": "series-3", "red": "series-6",
}  # fmt: skip
SHAPES: Mapping[Level, str] = {"green": "o", "grey": "D", "yellow": "^", "red": "s"}
_BINS = 25  # of the figure: two of the sketch's fifty each


def daily_probability_figure(today: Floats, references: Mapping[str, Floats]) -> Figure:
    """Draw shares of rows by probability: today as bars, each reference (name -> counts (50,)) as a line."""
    figure, axes = canvas(
        "Probability of being right", "Share of rows",
        width=10.4, left=0.055, right=0.99, top=0.965, bottom=0.15,
    )  # fmt: skip
    edges = np.linspace(0, 1, _BINS + 1)
    axes.bar(edges[:-1], _shares(today), width=0.9 / _BINS, align="edge", color=PALETTE["accent"], alpha=0.55)
    for name, dashes in (("history", "solid"), ("training", (0, (4, 2)))):
        if name in references:
            colour = PALETTE[REFERENCE_COLOURS[name]]
            axes.stairs(_shares(references[name]), edges, color=colour, linewidth=1.7, linestyle=dashes)
    axes.axvline(0.5, color=PALETTE["muted"], linewidth=1, dashes=(1, 2))
    axes.set_xlim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    return figure


REFERENCE_COLOURS = {"history": "ink", "training": "series-2"}


def trail_figure(line: TrendLine) -> Figure:
    """A value over the days; a day without a run is a gap. Today's mark is larger."""
    figure, axes = canvas(height=1.75, left=0.17, right=0.965, top=0.94, bottom=0.16)
    x = np.arange(len(line.days)) - (len(line.days) - 1)
    y = np.array([np.nan if value is None else value for value in line.values])
    axes.plot(x, y, color=PALETTE["muted"], linewidth=1.2)
    for level, shape in SHAPES.items():
        chosen = np.array([reached == level for reached in line.levels])
        size = np.where(x == 0, 42, 13)[chosen]
        axes.scatter(
            x[chosen], y[chosen], s=size, marker=shape, color=PALETTE[COLOURS[level]], linewidth=0, zorder=3
        )
    unjudged = np.array([level is None for level in line.levels])
    axes.scatter(x[unjudged], y[unjudged], s=10, color=PALETTE["muted"], linewidth=0, zorder=3, clip_on=False)
    axes.set_xlim(x[0] - 0.8, 1.2)
    ticks = [i for i in range(len(x)) if (len(x) - 1 - i) % 7 == 0]
    axes.set_xticks([x[i] for i in ticks], [f"{line.days[i].day} {line.days[i]:%b}" for i in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: line.shown(value)))
    _range(axes, y, line.most)
    return figure


def _range(axes: Axes, y: Floats, most: float | None) -> None:
    """Never so narrow that a hair of a difference fills the figure."""
    defined = y[np.isfinite(y)]
    if not defined.size:
        return
    low, high = float(defined.min()), float(defined.max())
    room = max(0.15 * (high - low), 0.1 * abs(high), 1e-3)
    # A hair above what is possible, so that marks there are not cut.
    top = high + room if most is None else min(high + room, 1.015 * most)
    axes.set_ylim(0.0 if low - room < 0 or low < 0.25 * high else low - room, top)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))


def _shares(counts: Floats) -> Floats:
    wide = counts.reshape(_BINS, -1).sum(axis=1)
    return np.asarray(wide / max(wide.sum(), 1.0))
