"""Calibration: of the answers given probability p, is a share p right?

Always on P(the answer is right) against right or wrong, never on max(p, 1 - p), which gives about 0.6 times
the error and is another quantity.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_probabilities
from sgpu.evaluation.ranking import Ranking, ratio

Binning = Literal["width", "mass"]


class ReliabilityCurve(NamedTuple):
    """The bins that hold rows (B,), from low to high: mean probability, share right, rows, upper edge."""

    probability: Floats
    accuracy: Floats
    n_rows: NDArray[np.int64]
    upper: Floats


def ece(probability: Floats, label: Floats, bins: int = 15, binning: Binning = "width") -> float:
    """Expected calibration error: mean over rows of |mean probability - share right| of their bin.

    Bins are (lo, hi] with 0 in the first, either of equal width or ("mass") of equal row count with rows
    of one probability kept together. The value moves much with ``bins``: always report it. NaN if n = 0.
    ``probability`` and ``label`` are (n,). Raises DataError on NaN or outside [0, 1].

    Source: Guo et al. 2017; the paper names neither bins nor binning.
    """
    p, y = _checked(probability, label)
    return float(ece_of(CalibrationBins.of(p, y, bins, binning), np.ones((len(p), 1)))[0])


def brier(probability: Floats, label: Floats) -> float:
    """Mean squared distance of probability and label, both (n,); NaN if n = 0."""
    return _mean(squared_errors(*_checked(probability, label)))


def log_loss(probability: Floats, label: Floats) -> float:
    """Mean of -ln of the probability given to what happened (nats), both (n,); NaN if n = 0."""
    return _mean(log_errors(*_checked(probability, label)))


def reliability_curve(
    probability: Floats, label: Floats, bins: int = 15, binning: Binning = "width"
) -> ReliabilityCurve:
    """The bins of `ece`, for plots; empty bins are left out."""
    p, y = _checked(probability, label)
    _check_bins(bins)
    edges = _width_edges(bins) if binning == "width" else _mass_edges(p, bins)
    index = _bin_index(p, edges)
    count = np.bincount(index, minlength=len(edges))
    filled = count > 0
    mean_p = np.bincount(index, p, len(edges))[filled] / count[filled]
    mean_y = np.bincount(index, y, len(edges))[filled] / count[filled]
    return ReliabilityCurve(mean_p, mean_y, count[filled], edges[filled])


def squared_errors(probability: Floats, label: Floats) -> Floats:
    """(n,) contributions to the Brier score."""
    return np.square(probability - label)


def log_errors(probability: Floats, label: Floats) -> Floats:
    """(n,) contributions to the log loss, clipped at the float64 epsilon as in scikit-learn."""
    tiny = np.finfo(np.float64).eps
    clipped = np.clip(probability, tiny, 1 - tiny)
    return -np.where(label == 1, np.log(clipped), np.log1p(-clipped))


class CalibrationBins(NamedTuple):
    """Rows laid out so that the error of many resamples is a few sums.

    Equal-width bins do not depend on the resample; equal-mass bins do, and are found anew in each.
    """

    bins: int
    present: Floats  # (n,) 1 for the rows that count
    gap: sparse.csr_array  # (B or G, n): probability - label, where a row belongs
    ranking: Ranking | None  # groups of equal probability, low to high, for equal mass

    @classmethod
    def of(
        cls, probability: Floats, label: Floats, bins: int, binning: Binning, present: Bools | None = None
    ) -> CalibrationBins:
        """Lay out ``probability`` (n,), valid where ``present``."""
        _check_bins(bins)
        rows = np.arange(len(probability)) if present is None else np.flatnonzero(present)
        p, y = probability[rows], label[rows]
        if binning == "width":
            ranking, index, n_bins = None, _bin_index(p, _width_edges(bins)), bins
        else:
            # Ranking puts the highest first; bins fill from the lowest.
            ranking = Ranking.of(-probability, label, present)
            index = np.searchsorted(-ranking.value, p)
            n_bins = len(ranking.value)
        gap = sparse.csr_array((p - y, (index, rows)), shape=(n_bins, len(probability)))
        counted = np.zeros(len(probability))
        counted[rows] = 1.0
        return cls(bins, counted, gap, ranking)


def ece_of(layout: CalibrationBins, counts: Floats) -> Floats:
    """(R,) errors for ``counts`` (n, R) of rows drawn."""
    gap, n = layout.gap @ counts, layout.present @ counts
    if layout.ranking is None:
        return ratio(np.abs(gap).sum(axis=0), n)
    if not len(gap):
        return np.full_like(n, np.nan)
    tally = layout.ranking.tally(counts)
    # Bin b ends with the group that holds the row of rank ceil(b n / bins).
    ranks = np.ceil(np.arange(1, layout.bins + 1)[:, None] * n / layout.bins)
    through = np.take_along_axis(np.cumsum(gap, axis=0), tally.group_reaching(ranks), axis=0)
    return ratio(np.abs(np.diff(through, axis=0, prepend=0.0)).sum(axis=0), n)


def _checked(probability: Floats, label: Floats) -> tuple[Floats, Floats]:
    y = checked_labels(label)
    return checked_probabilities(probability, len(y)), y


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise UsageError(f"bins is {bins}; a calibration error needs at least 1.")


def _mean(errors: Floats) -> float:
    return float(errors.mean()) if len(errors) else float("nan")


def _width_edges(bins: int) -> Floats:
    """(bins,) upper edges of equal-width bins."""
    return np.linspace(0.0, 1.0, bins + 1)[1:]


def _mass_edges(p: Floats, bins: int) -> Floats:
    """Upper edges of equal-mass bins; edges that coincide are one bin."""
    ranks = np.ceil(np.arange(1, bins + 1) * len(p) / bins).astype(np.intp)
    return np.unique(np.sort(p)[ranks - 1]) if len(p) else np.empty(0)


def _bin_index(p: Floats, upper: Floats) -> NDArray[np.intp]:
    return np.searchsorted(upper, p, side="left")
