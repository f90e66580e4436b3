"""Percentile bootstrap of every metric and method at once, on the same resamples; paired, of two methods.

Looping over a metric function costs a sort per method and resample. Here a resample is a vector of counts,
rows are sorted once a method, and each metric is a few sums over a block of resamples: the same numbers
(they are compared in the tests), many times faster. Memory is bounded by the block.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Floats, check_level
from sgpu.evaluation.ranking import Statistic

# What the caller tells its groups of statistics apart by: a method's name, say.
Key = TypeVar("Key", bound=Hashable)

# Counts held at once: 4 MB as float64, so that a block and the sums over it stay in the CPU's cache.
BLOCK_COUNTS = 2**19


class Interval(NamedTuple):
    """A point value with its percentile interval; NaN where undefined.

    ``n_resamples_used`` leaves out resamples in which the metric is undefined, as AUROC is in one class.
    """

    value: float
    lo: float
    hi: float
    n_resamples_used: int


def intervals(
    statistics: Mapping[Key, Sequence[Statistic]],
    n: int,
    *,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[Key, dict[str, Interval]]:
    """Point value and interval of each metric of each key's statistics over n rows.

    A calibration error is a sum of absolute values, which resampling inflates: its interval lies too high,
    and above the value itself where calibration is good.
    """
    values = evaluate(statistics, np.ones((n, 1)))
    drawn = replicates(statistics, n, n_resamples=n_resamples, seed=seed)
    return {
        key: {
            metric: percentile_interval(float(point[0]), drawn[key][metric], level)
            for metric, point in metrics.items()
        }
        for key, metrics in values.items()
    }


def replicates(
    statistics: Mapping[Key, Sequence[Statistic]], n: int, *, n_resamples: int = 2000, seed: int = 0
) -> dict[Key, dict[str, Floats]]:
    """(n_resamples,) values by key and metric; replicate r of all keys is of the same rows.

    So the difference of two replicates is a paired bootstrap of their difference.
    """
    blocks = [evaluate(statistics, as_counts(rows, n)) for rows in resampled_rows(n, n_resamples, seed)]
    return {
        key: {metric: np.concatenate([block[key][metric] for block in blocks]) for metric in blocks[0][key]}
        for key in statistics
    }


def evaluate(statistics: Mapping[Key, Sequence[Statistic]], counts: Floats) -> dict[Key, dict[str, Floats]]:
    """(R,) values by key and metric for ``counts`` (n, R)."""
    return {
        key: {metric: value for part in parts for metric, value in part(counts).items()}
        for key, parts in statistics.items()
    }


def resampled_rows(
    n: int, n_resamples: int, seed: int, block_counts: int = BLOCK_COUNTS
) -> Iterator[NDArray[np.int64]]:
    """Row numbers drawn with replacement, (R, n) a block; the draws do not depend on the block size."""
    if n_resamples < 1:
        raise UsageError(f"n_resamples is {n_resamples}; an interval needs at least 1 (the paper has 2000).")
    rng = np.random.default_rng(seed)
    # Odd: columns a power of two apart share cache lines, and sums down them run four times slower.
    block = max(block_counts // max(n, 1) - 1, 0) | 1
    for start in range(0, n_resamples, block):
        size = (min(block, n_resamples - start), n)
        yield rng.integers(n, size=size) if n else np.empty(size, dtype=np.int64)


def as_counts(rows: NDArray[np.int64], n: int) -> Floats:
    """(n, R) how often each of n rows occurs in each of the R rows of ``rows`` (R, n)."""
    n_resamples = len(rows)
    cell = rows * n_resamples + np.arange(n_resamples)[:, None]
    return np.bincount(cell.ravel(), minlength=n * n_resamples).reshape(n, n_resamples).astype(np.float64)


def percentile_interval(value: float, replicate: Floats, level: float = 0.95) -> Interval:
    """The central ``level`` of the replicates that are defined; NaN bounds if none is."""
    check_level(level)
    used = replicate[~np.isnan(replicate)]
    if not used.size:
        return Interval(value, float("nan"), float("nan"), 0)
    lo, hi = np.quantile(used, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(lo), float(hi), used.size)


# Differences below this are rounding: the same sums in another order.
DECIMALS = 12


class Difference(NamedTuple):
    """One method minus another, with its percentile interval and two-sided p; NaN where undefined."""

    value: float
    lo: float
    hi: float
    p: float
    n_resamples_used: int


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
                float(_rounded(point[first][metric], point[second][metric])[0]),
                _rounded(drawn[first][metric], drawn[second][metric]),
                level,
            )
            for metric in point[first]
        }
        for first, second in pairs
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


def _rounded(first: Floats, second: Floats) -> Floats:
    return np.round(first - second, DECIMALS)
