"""Whether a mean has moved, for groups that are too small for tests of whole distributions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS
from sgpu.watch.difference import Difference
from sgpu.watch.mmd import ENOUGH

BATCH = 2000
# NumPy draws from fewer than 10^9 rows. A larger reference counts as this many, of the same distribution.
MOST_ROWS = 10**8
# What two sums of the same numbers in another order may differ by.
ROUNDING = 1e-12
CENTRES = (np.arange(BINS) + 0.5) / BINS


@dataclass(frozen=True)
class Means:
    """Histograms of probabilities (BINS,) of today and of a reference, and a seed for permutations."""

    today: Floats
    reference: Floats
    seed: int

    def compared(self, permutations: int, least_effect: float) -> Difference:
        """`compare_means`; an effect below ``least_effect`` flags nothing and gets p = 1 without a draw."""
        seen = compare_means(self.today, self.reference, 0, self.seed)
        if seen.effect < least_effect:
            return seen
        return compare_means(self.today, self.reference, permutations, self.seed)


def compare_means(today: Floats, reference: Floats, permutations: int, seed: int) -> Difference:
    """Mean of histogram ``today`` (BINS,) less that of ``reference`` (BINS,), its size, and its p-value.

    The permutation test of the rows, each moved to the middle of its bin, is exact for any number of rows:
    how many rows of each bin fall to today's side is multivariate hypergeometric, so that histograms are
    drawn instead of rows. Up to ``permutations`` are drawn; once ENOUGH of them are as far apart as what was
    seen, p is their share (Besag and Clifford 1991). Without any permutation p is 1. Both hold a row or more.
    """
    reference = reference * min(1.0, MOST_ROWS / reference.sum())
    pooled = np.rint(today + reference).astype(np.int64)
    n, rows = round(float(today.sum())), int(pooled.sum())
    total = float(pooled @ CENTRES)

    def moved(sums: Floats) -> Floats:
        return np.asarray(sums / n - (total - sums) / (rows - n))

    shift = float(moved(np.array([today @ CENTRES]))[0])
    draw, used = np.random.default_rng(seed), pooled > 0
    tried = reached = 0
    while tried < permutations:
        batch = min(BATCH, permutations - tried)
        drawn = draw.multivariate_hypergeometric(pooled[used], n, size=batch, method="marginals")
        sums = drawn @ CENTRES[used]
        as_far = np.abs(moved(sums)) >= abs(shift) - ROUNDING
        if reached + as_far.sum() >= ENOUGH:
            last = int(np.flatnonzero(np.cumsum(as_far) == ENOUGH - reached)[0]) + 1
            return Difference(shift, abs(shift), ENOUGH / (tried + last))
        reached += int(as_far.sum())
        tried += batch
    return Difference(shift, abs(shift), (reached + 1) / (permutations + 1))
