"""The champion against the challenger on the same labelled rows, from counts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from sgpu.evaluation.delong import placements
from sgpu.evaluation.inputs import Floats
from sgpu.watch.group import NO_CHALLENGER, UNIT, Group

LEVEL = 0.95
# Fewer rows of either label have no interval.
LEAST = 20


@dataclass(frozen=True)
class NormalInterval:
    """A value with its normal 95 % interval; None where undefined. ``p`` is two-sided, that it is 0."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class ModelComparison:
    """Both models on ``rows`` rows that have a label and both probabilities, ``right`` of which are right.

    ``brier`` and ``auroc`` are (champion, challenger); the differences are champion less challenger, so that
    a Brier difference above 0 and an AUROC difference below 0 speak for the challenger.
    """

    rows: int
    right: int
    brier: tuple[float | None, float | None]
    auroc: tuple[NormalInterval, NormalInterval]
    brier_difference: NormalInterval
    auroc_difference: NormalInterval


def compare_models(group: Group) -> ModelComparison:
    """Compare what a group holds of both models.

    Brier scores are exact. Probabilities of one bin of 50 tie in the areas. The paired intervals are normal:
    of the mean for Brier, DeLong's for the areas.
    """
    cells = {key: count for key, count in group.labelled.items() if key[1] != NO_CHALLENGER}
    rows = group.counts["paired"]
    right = sum(count for key, count in cells.items() if key[2] == 1)
    areas, covariance = areas_of(cells)
    difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    enough = min(right, rows - right) >= LEAST
    shadow = group.mean("shadow_squared_error", "paired")
    gain = group.mean("gain", "paired")
    return ModelComparison(
        rows,
        right,
        (None if shadow is None or gain is None else shadow + gain, shadow),
        (_interval(areas[0], covariance[0, 0], enough), _interval(areas[1], covariance[1, 1], enough)),
        _mean_interval(gain, group.mean("gain_squared", "paired"), rows),
        _interval(areas[0] - areas[1], difference, enough, tested=True),
    )


def champion_auroc(group: Group) -> NormalInterval:
    """The champion's area over all labelled rows, with DeLong's interval."""
    areas, covariance = areas_of(group.labelled)
    right = group.counts["right"]
    enough = min(right, group.counts["labelled"] - right) >= LEAST
    return _interval(areas[0], covariance[0, 0], enough)


def areas_of(cells: Mapping[tuple[int, int, int], int]) -> tuple[Floats, Floats]:
    """AUROC of both columns of (bin, bin, label) -> rows, (2,), and their covariance, (2, 2).

    NaN where a label is absent, a NaN covariance also where one has a single row. Ties count one half.
    Source: DeLong, DeLong and Clarke-Pearson 1988, on rows that come in counts.
    """
    columns = np.array([*cells], dtype=np.float64).reshape(-1, 3).T
    rows, is_right = np.array([*cells.values()], dtype=np.int64), columns[2] == 1
    right, wrong = rows[is_right], rows[~is_right]
    n_right, n_wrong = right.sum(), wrong.sum()
    if not n_right or not n_wrong:
        return np.full(2, np.nan), np.full((2, 2), np.nan)
    weights = right.astype(np.float64), wrong.astype(np.float64)
    beaten, unbeaten = placements(columns[:2, is_right], columns[:2, ~is_right], weights)
    areas = beaten @ right / n_right
    if min(n_right, n_wrong) < 2:
        return areas, np.full((2, 2), np.nan)
    return areas, np.cov(beaten, fweights=right) / n_right + np.cov(unbeaten, fweights=wrong) / n_wrong


def _interval(value: float, variance: float, enough: bool, *, tested: bool = False) -> NormalInterval:
    if math.isnan(value):
        return NormalInterval()
    if not enough or math.isnan(variance):
        return NormalInterval(float(value))
    se = math.sqrt(max(variance, 0.0))
    half = float(ndtri((1 + LEVEL) / 2)) * se
    p = None
    if tested:
        p = float(2 * ndtr(-abs(value) / se)) if se > 1e-12 else (1.0 if abs(value) < 1e-12 else None)
    return NormalInterval(float(value), float(value - half), float(value + half), p)


def _mean_interval(mean: float | None, mean_square: float | None, rows: int) -> NormalInterval:
    if mean is None or mean_square is None:
        return NormalInterval()
    # Squares were kept in steps of 1 / UNIT, so a variance below that is rounding.
    variance = max(mean_square - mean**2, 0.0)
    variance = 0.0 if variance < 2 / UNIT else variance * rows / max(rows - 1, 1)
    return _interval(mean, variance / rows, rows >= 2 * LEAST, tested=True)
