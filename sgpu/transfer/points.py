"""Points of curves: metrics as means over seeds, all on the same test rows and the same resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.auroc import auroc_of
from sgpu.evaluation.bootstrap import evaluate, percentile_interval, replicates
from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.metrics import BINS, probability_statistic, ranking_statistic
from sgpu.evaluation.paired import bootstrap_p
from sgpu.evaluation.ranking import Statistic


@dataclass(frozen=True)
class Point:
    """The mean of a metric over seeds; None where undefined. ``difference``: the point minus the first one.

    Intervals are over the test rows, with the seeds as they were drawn.
    """

    size: int
    metric: str
    value: float | None
    lo: float | None
    hi: float | None
    difference: float | None = None
    difference_lo: float | None = None
    difference_hi: float | None = None
    difference_p: float | None = None
    seeds: int = 0


def points(
    forecasts: Mapping[int, Sequence[Floats]], label: Floats, *, n_resamples: int, seed: int
) -> list[Point]:
    """Points of ``forecasts``, by size the probabilities (n,) of each seed; the first size is the reference.

    ``label`` is (n,); nothing may be missing.
    """
    statistics: dict[tuple[int, int], list[Statistic]] = {
        (size, i): [
            ranking_statistic(probability, label, metrics={"auroc": auroc_of}),
            probability_statistic(probability, label, ece_bins={"width": {"ece": BINS}}),
        ]
        for size, seeds in forecasts.items()
        for i, probability in enumerate(seeds)
    }
    at = evaluate(statistics, np.ones((len(label), 1)))
    drawn = replicates(statistics, len(label), n_resamples=n_resamples, seed=seed)
    found: list[Point] = []
    reference: dict[str, tuple[float, Floats]] = {}
    for size, seeds in forecasts.items():
        keys = [(size, i) for i in range(len(seeds))]
        for metric in at[keys[0]] if keys else ():
            value = float(np.mean([at[key][metric][0] for key in keys]))
            replicate = np.mean([drawn[key][metric] for key in keys], axis=0)
            first = reference.setdefault(metric, (value, replicate))
            found.append(_point(size, metric, value, replicate, first, len(keys)))
    return found


def _point(
    size: int, metric: str, value: float, replicate: Floats, first: tuple[float, Floats], seeds: int
) -> Point:
    interval = percentile_interval(value, replicate)
    moved = percentile_interval(value - first[0], replicate - first[1])
    p = bootstrap_p(np.round(replicate - first[1], 12)) if replicate is not first[1] else float("nan")
    return Point(
        size=size,
        metric=metric,
        value=_defined(interval.value),
        lo=_defined(interval.lo),
        hi=_defined(interval.hi),
        difference=_defined(moved.value),
        difference_lo=_defined(moved.lo),
        difference_hi=_defined(moved.hi),
        difference_p=_defined(p),
        seeds=seeds,
    )


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
