"""Maximum mean discrepancy: whether two samples of vectors come from one distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from sgpu.evaluation.inputs import Floats
from sgpu.watch.difference import Difference

# Permutations drawn at a time, and how many as large as what was seen settle that nothing is to be seen.
BATCH = 250
ENOUGH = 20
# What two sums of the same numbers in another order may differ by.
ROUNDING = 1e-7

Members = NDArray[np.float32]


class Pooled(NamedTuple):
    """The kernel of both samples, (n + m, n + m) with zeros on its diagonal; the first n are today's."""

    kernel: NDArray[np.float32]
    n: int


@dataclass(frozen=True)
class Samples:
    """Samples of vectors (n, d) and (m, d), of which every head is a sample as well, and a seed."""

    today: Floats
    reference: Floats
    seed: int

    def lengths(self, rows: int) -> tuple[int, int]:
        """How many vectors `compared` reads of each."""
        return min(rows, len(self.today)), min(rows, len(self.reference))

    def compared(self, rows: int, permutations: int) -> Difference:
        """`compare_vectors` on at most ``rows`` of each."""
        return compare_vectors(self.today[:rows], self.reference[:rows], permutations, self.seed)


def compare_vectors(today: Floats, reference: Floats, permutations: int, seed: int) -> Difference:
    """Unbiased squared discrepancy of samples (n, d) and (m, d), its root, and its p-value; n, m at least 2.

    The kernel is Gaussian, its width the median distance of all rows, so that the root lies between 0 and
    about 1.4 whatever the units. Rows are permuted up to ``permutations`` times, by ``seed``; once ENOUGH of
    them give as much as was seen, p is their share and no more are drawn, which leaves it valid. Without any
    permutation p is 1.
    Source: Gretton et al. 2012, "A kernel two-sample test", lemma 6; Besag and Clifford 1991 (stopping).
    """
    pooled = gaussian_kernel(today, reference)
    member = np.zeros((1, len(pooled.kernel)), dtype=np.float32)
    member[0, : pooled.n] = 1
    seen = float(squared_discrepancies(pooled, member)[0])
    return Difference(seen, math.sqrt(max(seen, 0.0)), _p_value(pooled, seen, permutations, seed))


def gaussian_kernel(today: Floats, reference: Floats) -> Pooled:
    """exp(-d^2 / (2 w^2)) of all pairs, w their median distance; of the positive ones where most are 0."""
    distances = pdist(np.concatenate([today, reference]))
    width = float(np.median(distances))
    if width == 0:
        width = float(np.median(distances[distances > 0])) if distances.any() else 1.0
    kernel = squareform(np.exp(-0.5 * (distances / width) ** 2))
    # Single precision is enough for comparing permutations and twice as fast: sums are of some 1000 terms.
    return Pooled(kernel.astype(np.float32), len(today))


def squared_discrepancies(pooled: Pooled, member: Members) -> Floats:
    """(R,) unbiased estimates; each row of ``member`` (R, n + m) is 1 for n rows and 0 for the others.

    May be negative. Mean of the kernel over pairs within one sample, plus that within the other, less twice
    that between them.
    """
    kernel, n = pooled
    m = len(kernel) - n
    within = np.einsum("rj,rj->r", member @ kernel, member, dtype=np.float64)
    by_row = kernel.sum(axis=1, dtype=np.float64)
    to_all = np.einsum("rj,j->r", member, by_row)
    between = to_all - within
    rest = by_row.sum() - to_all - between
    return np.asarray(within / (n * (n - 1)) + rest / (m * (m - 1)) - 2 * between / (n * m))


def _p_value(pooled: Pooled, seen: float, permutations: int, seed: int) -> float:
    """The share of permutations that give ``seen`` or more, the observed order being one of them."""
    draw = np.random.default_rng(seed)
    size, n = len(pooled.kernel), pooled.n
    tried = reached = 0
    while tried < permutations:
        batch = min(BATCH, permutations - tried)
        member = np.zeros((batch, size), dtype=np.float32)
        member[:, :n] = 1
        larger = squared_discrepancies(pooled, draw.permuted(member, axis=1)) >= seen - ROUNDING
        if reached + larger.sum() >= ENOUGH:
            last = int(np.flatnonzero(np.cumsum(larger) == ENOUGH - reached)[0]) + 1
            return ENOUGH / (tried + last)
        reached += int(larger.sum())
        tried += batch
    return (reached + 1) / (permutations + 1)
