"""Rows ranked by score, tallied for many bootstrap resamples at once.

A resample is a column of counts: how often each row was drawn. The rows are sorted once; every ranking
metric is then a formula on the sums per group of equal scores. One formula serves the point value
(all counts 1) and the bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_scores

# Counts (n, R) of R resamples of n rows -> the metrics by name, (R,) each, NaN where undefined.
Statistic = Callable[[Floats], dict[str, Floats]]


@dataclass(frozen=True)
class Tally:
    """Right and wrong rows drawn in each group of equal scores, best group first: (G, R) each."""

    right: Floats
    wrong: Floats

    @cached_property
    def total(self) -> Floats:
        return self.right + self.wrong

    @cached_property
    def right_through(self) -> Floats:
        """Right rows in this group and all better ones."""
        return np.cumsum(self.right, axis=0)

    @cached_property
    def total_through(self) -> Floats:
        return np.cumsum(self.total, axis=0)

    @cached_property
    def n(self) -> Floats:
        """(R,) rows in each resample."""
        return self.total.sum(axis=0)

    def group_reaching(self, k: Floats) -> NDArray[np.intp]:
        """(K, R) first group with which the best ``k`` (K, R) rows are complete."""
        return first_reaching(self.total_through, k)


@dataclass(frozen=True)
class Ranking:
    """The sorted rows of one score. ``value`` (G,) are the distinct scores, best first."""

    value: Floats
    right: sparse.csr_array  # (G, n): 1 where a right row belongs to a group
    wrong: sparse.csr_array

    @classmethod
    def of(cls, score: Floats, label: Floats, present: Bools | None = None) -> Ranking:
        """Rank ``score`` (n,), higher first; rows that are not ``present`` belong to no group."""
        rows = np.arange(len(score)) if present is None else np.flatnonzero(present)
        labels = checked_labels(label[rows])
        value, group = np.unique(-checked_scores(score[rows], len(rows)), return_inverse=True)

        def membership(chosen: Bools) -> sparse.csr_array:
            where = (group[chosen], rows[chosen])
            return sparse.csr_array((np.ones(chosen.sum()), where), shape=(len(value), len(score)))

        return cls(-value, membership(labels == 1), membership(labels == 0))

    def tally(self, counts: Floats) -> Tally:
        """Sums per group for ``counts`` (n, R)."""
        return Tally(self.right @ counts, self.wrong @ counts)


def first_reaching(through: Floats, k: Floats) -> NDArray[np.intp]:
    """(K, R) first position at which a column of ``through`` (G, R), never falling, is at least ``k`` (K, R).

    By bisection of all columns at once; the last position where a column stays below.
    """
    low = np.zeros(k.shape, dtype=np.intp)
    high = np.full(k.shape, max(len(through) - 1, 0), dtype=np.intp)
    for _ in range(len(through).bit_length()):
        middle = (low + high) // 2
        reached = np.take_along_axis(through, middle, axis=0) >= k
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        low = np.minimum(low, high)
    return high


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Their quotient, NaN where the denominator is 0 (an undefined metric, not a small one)."""
    undefined = np.full(np.broadcast_shapes(np.shape(numerator), np.shape(denominator)), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def tally_once(confidence: Floats, label: Floats) -> Tally:
    """The tally of the rows as they are, every row once (R = 1)."""
    scores, labels = np.asarray(confidence, dtype=np.float64), np.asarray(label, dtype=np.float64)
    checked_scores(scores, len(checked_labels(labels)))
    return Ranking.of(scores, labels).tally(np.ones((len(scores), 1)))
