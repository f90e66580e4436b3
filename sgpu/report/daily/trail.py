"""The days up to today as lines: a value for each day, None where no run was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from sgpu.report.look import numbers
from sgpu.watch.comparisons import PSI
from sgpu.watch.history import PastDay
from sgpu.watch.metrics import largest_effect
from sgpu.watch.verdict import Level, Verdict


@dataclass(frozen=True)
class Line:
    """One value over the days, oldest first, today last. ``shown`` writes a value, ``most`` bounds it."""

    name: str
    title: str
    days: tuple[date, ...]
    values: tuple[float | None, ...]
    levels: tuple[Level | None, ...]
    shown: Callable[[float | None], str]
    remark: str = ""
    most: float | None = None


@dataclass(frozen=True)
class TrailRow:
    """A day of the table beneath the charts; all None for a day without a run."""

    day: date
    level: Level | None
    values: tuple[str, ...]


def _scores(day: PastDay) -> float | None:
    return float(day.sketch.rows)


def _mean_probability(day: PastDay) -> float | None:
    rows = day.sketch.rows
    means = [(group.mean_probability or 0.0) * group.rows for group in day.sketch.groups.values()]
    return sum(means) / rows if rows else None


def _unsafe_share(day: PastDay) -> float | None:
    unsafe = sum(group.counts["unsafe"] for group in day.sketch.groups.values())
    return unsafe / day.sketch.rows if day.sketch.rows else None


def _scoreable(day: PastDay) -> float | None:
    return day.accounting.scoreable_share


def _quarantined(day: PastDay) -> float | None:
    return day.accounting.quarantined / day.accounting.rows_in if day.accounting.rows_in else None


def _largest_psi(day: PastDay) -> float | None:
    return None if day.verdict is None else largest_effect(day.verdict, PSI, "history")


def _count(value: float | None) -> str:
    return "–" if value is None else numbers.count(round(value))


def _share(value: float | None) -> str:
    return "–" if value is None else numbers.percent(value)


def _decimals(value: float | None) -> str:
    return "–" if value is None else numbers.decimals(value)


Read = Callable[[PastDay], float | None]
Write = Callable[[float | None], str]
LINES: tuple[tuple[str, str, Read, Write, str], ...] = (
    ("scores", "Scored requests", _scores, _count, "all of the day that are in the table"),
    ("scoreable", "Scoreable share", _scoreable, _share, "of the requests that carry an answer"),
    ("quarantined", "Quarantined share", _quarantined, _share, "of all rows of the logs"),
    ("probability", "Mean probability", _mean_probability, _decimals, "of being right"),
    ("unsafe", "Unsafe share", _unsafe_share, _share, "of the scored requests"),
    ("psi", "Largest stability index", _largest_psi, _decimals, "of a model and route against its past"),
)


def window(today: date, days: int) -> tuple[date, ...]:
    """The ``days`` days before today, and today."""
    return tuple(today - timedelta(days=back) for back in range(days, -1, -1))


def lines(today: PastDay, past: tuple[PastDay, ...], days: int) -> list[Line]:
    """Every value that is followed over the days."""
    known = {one.day: one for one in (*past, today)}
    shown = window(today.day, days)
    levels = tuple(level_of(known[day].verdict) if day in known else None for day in shown)
    return [
        Line(
            name, title, shown, tuple(read(known[day]) if day in known else None for day in shown), levels,
            write, remark, None if write is _count or name == "psi" else 1.0,
        )
        for name, title, read, write, remark in LINES
    ]  # fmt: skip


def level_of(verdict: Verdict | None) -> Level | None:
    return None if verdict is None else verdict.level


def table(made: list[Line]) -> list[TrailRow]:
    """The same, a row a day, newest first."""
    first = made[0]
    rows = [
        TrailRow(day, first.levels[i], tuple(line.shown(line.values[i]) for line in made))
        for i, day in enumerate(first.days)
    ]
    return rows[::-1]
