"""Intervals and differences of methods on the same rows, from their confidences and probabilities."""

from __future__ import annotations

from collections.abc import Mapping

from sgpu.evaluation.bootstrap import Difference, Interval, Key, differences, intervals
from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.metrics import probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic


def bootstrap(
    confidence: Mapping[str, Floats],
    label: Floats,
    *,
    probability: Mapping[str, Floats] | None = None,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """Percentile intervals by method and metric; ``confidence``, ``probability`` and ``label`` are (n,).

    Ranking metrics come from ``confidence``; calibration errors, brier and log_loss only for methods that
    have a ``probability``. A calibration error is a sum of absolute values, which resampling inflates: its
    interval lies too high, and above the value itself where calibration is good.

    Raises DataError on NaN: leave such rows out first.
    """
    statistics = _statistics(confidence, probability or {}, label)
    return intervals(statistics, len(label), n_resamples=n_resamples, level=level, seed=seed)


def paired_bootstrap(
    first: Floats,
    second: Floats,
    label: Floats,
    *,
    probability: tuple[Floats, Floats] | None = None,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Difference]:
    """``first`` minus ``second`` by metric; both confidences and ``label`` are (n,).

    Metrics of probabilities come only with a pair of them. Raises DataError on NaN: keep the rows that both
    methods have.
    """
    statistics = _statistics(dict(enumerate((first, second))), dict(enumerate(probability or ())), label)
    return differences(statistics, [(0, 1)], len(label), n_resamples=n_resamples, level=level, seed=seed)[0]


def _statistics(
    confidence: Mapping[Key, Floats], probability: Mapping[Key, Floats], label: Floats
) -> dict[Key, list[Statistic]]:
    statistics = {key: [ranking_statistic(scores, label)] for key, scores in confidence.items()}
    for key, p in probability.items():
        statistics.setdefault(key, []).append(probability_statistic(p, label))
    return statistics
