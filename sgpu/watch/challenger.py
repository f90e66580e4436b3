"""The champion against the challenger on the same labelled rows, from counts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from sgpu.evaluation.inputs import Bools, Floats
from sgpu.fitted.profile import BINS
from sgpu.watch.group import NO_CHALLENGER, UNIT, Group

LEVEL = 0.95
# Fewer rows of either label have no interval.
LEAST = 20


@dataclass(frozen=True)
class Interval:
    """A value with its normal 95 % interval; None where undefined. ``p`` is two-sided, that it is 0."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Duel:
    """Both models on ``rows`` rows that have a label and both probabilities, ``right`` of which are right.

    ``brier`` and ``auroc`` are (champion, challenger); the differences are champion less challenger, so that
    a Brier difference above 0 and an AUROC difference below 0 speak for the challenger.
    """

    rows: int
    right: int
    brier: tuple[float | None, float | None]
    auroc: tuple[Interval, Interval]
    brier_difference: Interval
    auroc_difference: Interval


def duel(group: Group) -> Duel:
    """Compare what a group holds of both models.

    Brier scores are exact. Probabilities of one bin of 50 tie in the areas. The paired intervals are normal:
    of the mean for Brier, DeLong's for the areas.
    """
    cells = {key: count for key, count in group.labelled.items() if key[1] != NO_CHALLENGER}
    rows = group.counts["paired"]
    right = sum(count for key, count in cells.items() if key[2] == 1)
    areas, covariance = areas_of(cells)
    difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    known = min(right, rows - right) >= LEAST
    shadow = group.mean("shadow_squared_error", "paired")
    gain = group.mean("gain", "paired")
    return Duel(
        rows,
        right,
        (None if shadow is None or gain is None else shadow + gain, shadow),
        (_interval(areas[0], covariance[0, 0], known), _interval(areas[1], covariance[1, 1], known)),
        _mean_interval(gain, group.mean("gain_squared", "paired"), rows),
        _interval(areas[0] - areas[1], difference, known, tested=True),
    )


def champion_auroc(group: Group) -> Interval:
    """The champion's area over all labelled rows, with DeLong's interval."""
    areas, covariance = areas_of(group.labelled)
    right = group.counts["right"]
    known = min(right, group.counts["labelled"] - right) >= LEAST
    return _interval(areas[0], covariance[0, 0], known)


def areas_of(cells: Mapping[tuple[int, int, int], int]) -> tuple[Floats, Floats]:
    """AUROC of both columns of (bin, bin, label) -> rows, (2,), and their covariance, (2, 2).

    NaN where a label is absent, a NaN covariance also where one has a single row. Ties count one half.
    Source: DeLong, DeLong and Clarke-Pearson 1988, on rows that come in counts.
    """
    known = sorted(cells)
    places = np.array(known, dtype=np.intp).reshape(-1, 3)
    weight = np.array([cells[key] for key in known], dtype=np.float64)
    is_right = places[:, 2] == 1
    n_right, n_wrong = float(weight[is_right].sum()), float(weight[~is_right].sum())
    if not n_right or not n_wrong:
        return np.full(2, np.nan), np.full((2, 2), np.nan)
    beaten = np.stack([_beaten(places[:, column], weight, is_right) for column in (0, 1)])
    of_right, of_wrong = beaten[:, is_right] / n_wrong, beaten[:, ~is_right] / n_right
    areas = of_right @ weight[is_right] / n_right
    if min(n_right, n_wrong) < 2:
        return areas, np.full((2, 2), np.nan)
    by_right, by_wrong = _scatter(of_right, weight[is_right]), _scatter(of_wrong, weight[~is_right])
    return areas, by_right / n_right + by_wrong / n_wrong


def _beaten(bins: NDArray[np.intp], weight: Floats, is_right: Bools) -> Floats:
    """For each cell: wrong rows below a right one, right rows above a wrong one."""
    bins = bins - min(0, int(bins.min()))
    wrong = np.bincount(bins, weight * ~is_right, minlength=BINS)
    right = np.bincount(bins, weight * is_right, minlength=BINS)
    below = np.cumsum(wrong) - wrong / 2
    above = right.sum() - np.cumsum(right) + right / 2
    return np.where(is_right, below[bins], above[bins])


def _scatter(values: Floats, weight: Floats) -> Floats:
    """(2, 2) covariance of values (2, C) that occur ``weight`` (C,) times."""
    total = weight.sum()
    centred = values - (values @ weight / total)[:, None]
    return np.asarray(centred * weight @ centred.T / (total - 1))


def _interval(value: float, variance: float, known: bool, *, tested: bool = False) -> Interval:
    if math.isnan(value):
        return Interval()
    if not known or math.isnan(variance):
        return Interval(float(value))
    se = math.sqrt(max(variance, 0.0))
    half = float(ndtri((1 + LEVEL) / 2)) * se
    p = None
    if tested:
        p = float(2 * ndtr(-abs(value) / se)) if se > 1e-12 else (1.0 if abs(value) < 1e-12 else None)
    return Interval(float(value), float(value - half), float(value + half), p)


def _mean_interval(mean: float | None, mean_square: float | None, rows: int) -> Interval:
    if mean is None or mean_square is None:
        return Interval()
    # Squares were kept in steps of 1 / UNIT, so a variance below that is rounding.
    variance = max(mean_square - mean**2, 0.0)
    variance = 0.0 if variance < 2 / UNIT else variance * rows / max(rows - 1, 1)
    return _interval(mean, variance / rows, rows >= 2 * LEAST, tested=True)
