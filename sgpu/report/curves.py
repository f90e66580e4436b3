"""The numbers behind the figures: retention curve, reliability bins, histogram (pure NumPy)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RELIABILITY_BINS = 15  # the bins of the ECE in the metrics table
HISTOGRAM_BINS = 20


@dataclass(frozen=True)
class ReliabilityBin:
    """One of the equal-width bins (lo, hi]; the first also holds 0."""

    lo: float
    hi: float
    count: int
    mean_probability: float
    accuracy: float


def retention_curve(confidence: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Share kept and expected accuracy of the k most confident, for every k in 1..Q.

    Takes (Q,) confidences and (Q,) 0/1 labels without NaN. Rows of equal confidence are taken in
    random order, in expectation, so a point inside a tie does not depend on how rows were sorted.
    Mean accuracy over k is the exact AUARC.
    """
    if not len(label):
        return np.empty(0), np.empty(0)
    _, group, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    accuracy = np.bincount(group, weights=label) / size
    kept = np.arange(1, len(label) + 1)
    # Row k adds the mean label of the tie group it falls in.
    return kept / len(label), np.cumsum(np.repeat(accuracy, size)) / kept


def reliability_bins(
    probability: Floats, label: Floats, bins: int = RELIABILITY_BINS
) -> list[ReliabilityBin]:
    """The non-empty equal-width bins of (Q,) probabilities with (Q,) 0/1 labels, without NaN."""
    edges = np.linspace(0, 1, bins + 1)
    index = np.clip(np.searchsorted(edges, probability, side="left") - 1, 0, bins - 1)
    return [
        ReliabilityBin(
            float(edges[b]),
            float(edges[b + 1]),
            int(inside.sum()),
            float(probability[inside].mean()),
            float(label[inside].mean()),
        )
        for b in range(bins)
        if (inside := index == b).any()
    ]


def histogram(probability: Floats, unsafe: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Bin edges and the counts of safe and of unsafe rows among (Q,) probabilities."""
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    safe, _ = np.histogram(probability[~unsafe], edges)
    flagged, _ = np.histogram(probability[unsafe], edges)
    return edges, safe.astype(np.float64), flagged.astype(np.float64)
