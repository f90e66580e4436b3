"""Pools of several cells: how much each row counts, and which rows a search of hyper-parameters sees."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError, UsageError
from sgpu.registry import unknown_name

Floats = NDArray[np.float64]
Pool = Literal["by_row", "by_cell"]


class SearchRows(NamedTuple):
    """Rows of a pool (indices) and their weights; None where all count alike."""

    rows: NDArray[np.intp]
    weights: Floats | None


def row_weights(cell: NDArray[Any], pool: str) -> Floats | None:
    """Weights (M,) of rows of the cells ``cell`` (M,): their sum is M, and by_cell every cell's is the same.

    None for by_row, where every row counts as one. Raises UsageError for another name.
    """
    if pool == "by_row":
        return None
    if pool != "by_cell":
        raise UsageError(unknown_name("pool", pool, ["by_cell", "by_row"]))
    _, index, count = np.unique(cell, return_inverse=True, return_counts=True)
    return np.asarray(len(cell) / (len(count) * count[index]), dtype=np.float64)


def checked_weights(values: ArrayLike, rows: int) -> Floats:
    """Weights as numbers; DataError unless there is one above 0 for each row."""
    weights = np.asarray(values, dtype=np.float64)
    if weights.shape != (rows,):
        raise DataError(f"weights have shape {weights.shape}, the spectra {rows} rows; ({rows},) is needed")
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"weight {weights[row]} in row {row}; give each row one above 0, or leave it out")
    return weights


def effective_rows(weights: Floats) -> float:
    """How many rows of equal weight have the same variance of a mean (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights @ weights))


# A row of weight w has w places of a draw; more of them than this say nothing new, and take memory.
MOST_PLACES = 10**7


def count_weighted_rows(rows: int, weights: Floats | None) -> int:
    """Return how many rows a draw sees: a row of weight w as w equal rows, and every row at least once."""
    return rows if weights is None else max(rows, round(weights.sum()))


def draw_rows(rows: int, most: int, seed: int, weights: Floats | None = None) -> SearchRows:
    """Return at most ``most`` rows by seed, each as often as it would be drawn if it stood there w times.

    If all fit, each row comes once with its weight; else rows repeat and count alike.
    """
    places = count_weighted_rows(rows, weights)
    if places <= most:
        return SearchRows(np.arange(rows), weights)
    if weights is None:
        return SearchRows(np.random.default_rng(seed).permutation(rows)[:most], None)
    places = min(places, max(rows, MOST_PLACES))
    ends = np.cumsum(weights * (places / weights.sum()))
    chosen = np.random.default_rng(seed).permutation(places)[:most]
    return SearchRows(np.minimum(np.searchsorted(ends, chosen + 0.5, side="right"), rows - 1), None)


def search_rows(
    rows: int, most: int, seed: int, weights: Floats | None = None, cells: NDArray[Any] | None = None
) -> SearchRows:
    """Return about ``most`` of more rows by seed; with ``cells`` (M,) each in proportion to its total weight.

    Weights are then scaled so that every cell keeps its part of the whole, and sum to the number of rows
    chosen. Without cells, rows are drawn by weight and count alike; see `draw_rows`.
    """
    if cells is None:
        return SearchRows(np.sort(draw_rows(rows, most, seed, weights).rows), None)
    order = np.random.default_rng(seed).permutation(rows)
    weight = np.ones(rows) if weights is None else weights
    _, index = np.unique(cells, return_inverse=True)
    total = np.bincount(index, weight).astype(np.float64)
    quota = _quotas(total, np.bincount(index), most)
    shuffled = order[np.argsort(index[order], kind="stable")]
    first = np.searchsorted(index[shuffled], np.arange(len(total)))
    rank = np.arange(rows) - first[index[shuffled]]
    chosen = np.sort(shuffled[rank < quota[index[shuffled]]])
    kept = np.bincount(index[chosen], weight[chosen], minlength=len(total))
    scaled = weight[chosen] * total[index[chosen]] / kept[index[chosen]]
    return SearchRows(chosen, scaled * (len(chosen) / scaled.sum()))


def _quotas(weight: Floats, size: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """How many rows each cell gives: by weight, but never more than it has and, so that none is lost, one."""
    free = np.ones(len(size), dtype=bool)
    part = size.astype(np.float64)
    while free.any():
        part[free] = (most - size[~free].sum()) * weight[free] / weight[free].sum()
        short = free & (part >= size)
        if not short.any():
            break
        # What a small cell cannot give is shared among the others.
        part[short], free = size[short], free & ~short
    quota = np.floor(part).astype(np.intp)
    largest_remainders = np.argsort(quota - part, kind="stable")[: most - int(quota.sum())]
    quota[largest_remainders] += 1
    return np.maximum(quota, 1)
