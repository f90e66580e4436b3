"""Calibration: of the answers given probability p, is a share p right?

Always on P(the answer is right) against right or wrong, never on max(p, 1 - p), which gives about 0.6 times
the error and is another quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_probabilities
from sgpu.evaluation.ranking import first_reaching, ratio

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
    _check_bins(bins)
    layout = BINNINGS[binning].of(p, y, [bins], np.ones(len(p), dtype=np.bool_))
    return float(ratio(layout.gaps(np.ones((len(p), 1)))[0], np.array([len(p)]))[0])


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


@dataclass(frozen=True)
class WidthBins:
    """Rows laid out in equal-width bins, which no resample moves.

    For several numbers of bins the rows are summed once, into the parts between neighbouring edges of any of
    them: every bin is a run of whole parts.
    """

    gap: sparse.csr_array  # (parts, n): probability - label, where a row belongs
    starts: list[NDArray[np.intp]]  # for each number of bins, the first part of every bin

    @classmethod
    def of(cls, probability: Floats, label: Floats, bins: Sequence[int], present: Bools) -> WidthBins:
        """Lay out ``probability`` (n,), valid where ``present``."""
        rows = np.flatnonzero(present)
        p = probability[rows]
        edges = [_width_edges(number) for number in bins]
        parts = np.unique(np.concatenate(edges))
        starts = [np.concatenate([[0], np.searchsorted(parts, upper[:-1]) + 1]) for upper in edges]
        where = (_bin_index(p, parts), rows)
        return cls(sparse.csr_array((p - label[rows], where), shape=(len(parts), len(probability))), starts)

    def gaps(self, counts: Floats) -> list[Floats]:
        """(R,) sums over the bins of |sum of probability - label|, for each number of bins."""
        gap = self.gap @ counts
        return [np.abs(np.add.reduceat(gap, starts, axis=0)).sum(axis=0) for starts in self.starts]


@dataclass(frozen=True)
class MassBins:
    """Rows laid out by probability, low to high, so that each resample finds its own equal-mass bins."""

    gap: sparse.csr_array  # (G, n): probability - label, where a row belongs to a group of equal probability
    member: sparse.csr_array  # (G, n): 1 there
    bins: Sequence[int]

    @classmethod
    def of(cls, probability: Floats, label: Floats, bins: Sequence[int], present: Bools) -> MassBins:
        """Lay out ``probability`` (n,), valid where ``present``."""
        rows = np.flatnonzero(present)
        p = probability[rows]
        value, group = np.unique(p, return_inverse=True)

        def by_group(entries: Floats) -> sparse.csr_array:
            return sparse.csr_array((entries, (group, rows)), shape=(len(value), len(probability)))

        return cls(by_group(p - label[rows]), by_group(np.ones(len(rows))), bins)

    def gaps(self, counts: Floats) -> list[Floats]:
        """(R,) sums over the bins of |sum of probability - label|, for each number of bins."""
        if not self.gap.shape[0]:
            return [np.zeros(counts.shape[1]) for _ in self.bins]
        rows_through = np.cumsum(self.member @ counts, axis=0)
        gap_through = np.cumsum(self.gap @ counts, axis=0)
        # Bin b ends with the group that holds the row of rank ceil(b n / bins).
        ranks = [
            np.ceil(np.arange(1, number + 1)[:, None] * rows_through[-1] / number) for number in self.bins
        ]
        ends = first_reaching(rows_through, np.concatenate(ranks))
        at_ends = np.split(np.take_along_axis(gap_through, ends, axis=0), np.cumsum(self.bins)[:-1])
        return [np.abs(np.diff(through, axis=0, prepend=0.0)).sum(axis=0) for through in at_ends]


BINNINGS: Mapping[Binning, type[WidthBins] | type[MassBins]] = {"width": WidthBins, "mass": MassBins}


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
