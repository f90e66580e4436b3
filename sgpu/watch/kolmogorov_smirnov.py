"""The Kolmogorov-Smirnov test on two histograms."""

from __future__ import annotations

import numpy as np
from scipy.stats import kstwo

from sgpu.evaluation.inputs import Floats
from sgpu.watch.difference import Difference


def compare_distributions(today: Floats, reference: Floats) -> Difference:
    """Largest distance of the distribution functions of two histograms (B,), with its p-value.

    It is the test of `scipy.stats.ks_2samp` on the rows, each moved to the middle of its bin; rows that tie
    make its asymptotic p-value too large rather than too small. Both hold a row at least.
    """
    n, m = float(today.sum()), float(reference.sum())
    distance = float(np.abs(np.cumsum(today) / n - np.cumsum(reference) / m).max())
    rows = round(n * m / (n + m))
    return Difference(distance, distance, float(np.clip(kstwo.sf(distance, rows), 0.0, 1.0)))
