"""Rows ranked by score, and what a ranking is worth: AUROC, AUARC and accuracy at a coverage.

A resample is a column of counts: how often each row was drawn. The rows are sorted once; every ranking
metric is then a formula on the sums per group of equal scores. One formula serves the point value
(all counts 1) and the bootstrap.

Ties are averaged: inside a group of equal confidence every order is equally likely, so any number of rows
kept from it has the mean accuracy of the group. Breaking ties by sort order would make the result depend
on the NumPy version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sgpu.errors import UsageError
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


def auroc(confidence: Floats, label: Floats) -> float:
    """P(confidence of a right row > that of a wrong row), ties counting 1/2; NaN if one class is absent.

    ``confidence`` (n,) may be infinite; ``label`` (n,) is 1 right, 0 wrong. Raises DataError on NaN.
    """
    return float(auroc_of(tally_once(confidence, label))[0])


def auroc_of(tally: Tally) -> Floats:
    """(R,) areas. Every count is a whole number, so the sums are exact."""
    beaten = np.einsum("gr,gr->r", tally.wrong, tally.right_through)
    pairs_won = beaten - np.einsum("gr,gr->r", tally.wrong, tally.right) / 2
    n_right = tally.right.sum(axis=0)
    return ratio(pairs_won, n_right * (tally.n - n_right))


class RetentionCurve(NamedTuple):
    """Accuracy (n,) of the most confident share kept (n,), from 1/n to 1."""

    kept: Floats
    accuracy: Floats


def auarc(confidence: Floats, label: Floats) -> float:
    """Mean over k = 1..n of the accuracy of the k most confident rows; 1 if all are right, NaN if n = 0.

    ``confidence`` and ``label`` are (n,). Raises DataError on NaN. Source: the paper's text ("for every
    retention level"); equals lm-polygraph's prediction-rejection area where nothing is tied.
    """
    return float(auarc_of(tally_once(confidence, label))[0])


def auarc_20(confidence: Floats, label: Floats) -> float:
    """The area as published code computes it, and probably the paper's: at most 18/19 = 0.947.

    Twenty rectangles of width 0.9/19 under the accuracy at 10 % .. 100 % retention, whole groups of ties
    kept. Not an average: only for comparison with published numbers. Source: Kuhn et al.,
    semantic_uncertainty, ``area_under_thresholded_accuracy``.
    """
    return float(auarc_20_of(tally_once(confidence, label))[0])


def selective_accuracy(confidence: Floats, label: Floats, coverage: float) -> float:
    """Accuracy of the ceil(coverage n) most confident rows; NaN if n = 0.

    Raises UsageError unless 0 < coverage <= 1, DataError on NaN.
    """
    return float(selective_accuracy_of(tally_once(confidence, label), coverage)[0])


def retention_curve(confidence: Floats, label: Floats) -> RetentionCurve:
    """The curve whose mean is `auarc`, for plots."""
    tally = tally_once(confidence, label)
    k = np.arange(1, len(confidence) + 1, dtype=np.float64)
    return RetentionCurve(k / max(len(k), 1), _accuracy_at(tally, k[:, None])[:, 0])


def auarc_of(tally: Tally) -> Floats:
    """(R,) exact areas.

    Kept rows k in a group after b better rows, r of them right, have accuracy (r + (k - b) a) / k with a
    the accuracy of the group. Summed over its t rows: t a + (r - b a) (H(b + t) - H(b)), H harmonic.
    """
    most = int(tally.n.max(initial=0))
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, most + 1))])
    steps = np.take(harmonic, tally.total_through.astype(np.int32))
    steps[1:] -= steps[:-1].copy()
    # In place, because these are the largest arrays of the bootstrap: excess = r - b a.
    accuracy = tally.right / np.maximum(tally.total, 1.0)
    excess = tally.total_through - tally.total
    excess *= accuracy
    np.subtract(tally.right_through, excess, out=excess)
    excess -= tally.right
    return ratio(tally.right.sum(axis=0) + np.einsum("gr,gr->r", excess, steps), tally.n)


def auarc_20_of(tally: Tally) -> Floats:
    """(R,) areas of twenty rectangles."""
    shares = np.linspace(0.1, 1.0, 20)
    # NumPy's quantile lies between two order statistics; at or below it are the rows up to the lower one.
    last_kept = np.floor(shares[:, None] * (tally.n - 1)) + 1
    if not len(tally.total):
        return np.full_like(tally.n, np.nan)
    group = tally.group_reaching(last_kept)
    right = np.take_along_axis(tally.right_through, group, axis=0)
    kept = np.take_along_axis(tally.total_through, group, axis=0)
    return ratio(right, kept).sum(axis=0) * (shares[1] - shares[0])


def selective_accuracy_of(tally: Tally, coverage: float) -> Floats:
    """(R,) accuracies at one coverage."""
    if not 0 < coverage <= 1:
        raise UsageError(f"coverage is {coverage}; it is the share of rows kept, above 0 and at most 1.")
    # Rounded first: 0.07 * 100 is 7.000000000000001, which is 7 rows and not 8.
    k = np.ceil(np.round(coverage * tally.n, 9))
    return _accuracy_at(tally, k[None, :])[0]


def _accuracy_at(tally: Tally, k: Floats) -> Floats:
    """Expected accuracy (K, R) of the best ``k`` (K, R) rows."""
    if not len(tally.total):
        return np.full_like(k, np.nan)
    group = tally.group_reaching(k)

    def at_group(values: Floats) -> Floats:
        return np.take_along_axis(values, group, axis=0)

    right, total = at_group(tally.right), at_group(tally.total)
    from_group = k - (at_group(tally.total_through) - total)
    return ratio(at_group(tally.right_through) - right + from_group * ratio(right, total), k)
