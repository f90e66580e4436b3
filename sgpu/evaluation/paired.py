"""Paired bootstrap: how far do two methods differ on the same rows, and could it be chance?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sgpu.evaluation.bootstrap import Key, evaluate, percentile_interval, replicates
from sgpu.evaluation.inputs import Floats, checked_labels, checked_probabilities, checked_scores
from sgpu.evaluation.metrics import probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic

# Differences below this are rounding: the same sums in another order.
DECIMALS = 12


class Difference(NamedTuple):
    """One method minus another, with its percentile interval and two-sided p; NaN where undefined."""

    value: float
    lo: float
    hi: float
    p: float
    n_resamples_used: int


def paired_bootstrap(
    one: Floats,
    other: Floats,
    label: Floats,
    *,
    probability: tuple[Floats, Floats] | None = None,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Difference]:
    """``one`` minus ``other`` by metric; both confidences and ``label`` are (n,).

    Metrics of probabilities come only with a pair of them. Raises DataError on NaN: keep the rows that both
    methods have.
    """
    labels = checked_labels(label)
    n = len(labels)
    statistics: dict[int, list[Statistic]] = {
        i: [ranking_statistic(checked_scores(scores, n), labels)] for i, scores in enumerate((one, other))
    }
    for i, p in enumerate(probability or ()):
        statistics[i].append(probability_statistic(checked_probabilities(p, n), labels))
    return differences(statistics, [(0, 1)], n, n_resamples=n_resamples, level=level, seed=seed)[0]


def differences(
    statistics: Mapping[Key, Sequence[Statistic]],
    pairs: Sequence[tuple[Key, Key]],
    n: int,
    *,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[dict[str, Difference]]:
    """For each pair of keys, the first minus the second by metric, over n rows; no key is drawn twice."""
    point = evaluate(statistics, np.ones((n, 1)))
    drawn = replicates(statistics, n, n_resamples=n_resamples, seed=seed)
    return [
        {
            metric: _difference(
                float(_rounded(point[one][metric], point[other][metric])[0]),
                _rounded(drawn[one][metric], drawn[other][metric]),
                level,
            )
            for metric in point[one]
        }
        for one, other in pairs
    ]


def bootstrap_p(replicate: Floats) -> float:
    """Two-sided p that the difference is 0: twice the smaller share of resamples on either side of it.

    Up to one resample it is below 1 - level where the percentile interval of that level leaves 0 out. A
    resample that gives exactly 0 counts on both sides, and one more resample is counted than was drawn, so
    that p is never 0 (Davison and Hinkley 1997, section 4.2). NaN where no resample is defined.
    """
    used = replicate[~np.isnan(replicate)]
    if not used.size:
        return float("nan")
    smaller = min(np.count_nonzero(used <= 0), np.count_nonzero(used >= 0))
    return min(1.0, 2 * (smaller + 1) / (used.size + 1))


def _difference(value: float, replicate: Floats, level: float) -> Difference:
    interval = percentile_interval(value, replicate, level)
    p = float("nan") if np.isnan(value) else bootstrap_p(replicate)
    return Difference(interval.value, interval.lo, interval.hi, p, interval.n_resamples_used)


def _rounded(one: Floats, other: Floats) -> Floats:
    return np.round(one - other, DECIMALS)
