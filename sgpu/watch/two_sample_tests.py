"""Tests of today against a reference: of shares, histograms, means and samples of vectors.

SciPy is imported by the tests that use it: a night that finds nothing new makes none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS


class MeasuredDifference(NamedTuple):
    """``statistic`` has the p-value ``p``; ``effect`` does not grow with the number of rows."""

    statistic: float
    effect: float
    p: float


def compare_shares(part: int, rows: int, reference_part: int, reference_rows: int) -> MeasuredDifference:
    """Today's share less that before, with the one-sided p-value of Fisher's exact test for a rise.

    ``part`` of ``rows`` today, ``reference_part`` of ``reference_rows`` before, both with a row at least.
    """
    from scipy.stats import hypergeom

    rise = part / rows - reference_part / reference_rows
    p = hypergeom.sf(part - 1, rows + reference_rows, part + reference_part, rows)
    return MeasuredDifference(rise, rise, float(p))


WIDER_BINS = 10
# Added to every count, so that a bin that one side leaves empty is far but not infinitely far.
PSEUDO_COUNT = 0.5


def stability_index(today: Floats, reference: Floats) -> float:
    """The sum over bins of (share today - share before) x ln(share today / share before), for counts (B,).

    It is the symmetric Kullback-Leibler divergence. Source: Siddiqi 2006, "Credit Risk Scorecards".
    """
    share, share_before = (
        (counts + PSEUDO_COUNT) / (counts.sum() + PSEUDO_COUNT * len(counts)) for counts in (today, reference)
    )
    return float(((share - share_before) * np.log(share / share_before)).sum())


def compare_counts(today: Floats, reference: Floats) -> MeasuredDifference:
    """Index of two histograms (B,) over about WIDER_BINS bins, with chi-squared of homogeneity and its p.

    Both hold a row at least. The index times n m / (n + m) has the distribution of chi-squared where nothing
    changed (Yurdakul and Naranjo 2020), whose own p-value is exact enough for fewer rows.
    """
    from scipy.stats import chi2_contingency

    used = today + reference > 0
    today, reference = today[used], reference[used]
    bins = equal_bins(today, reference)
    wide = np.stack([np.bincount(bins, today), np.bincount(bins, reference)])
    effect = stability_index(wide[0], wide[1])
    if wide.shape[1] == 1:
        return MeasuredDifference(0.0, effect, 1.0)
    tested = chi2_contingency(wide, correction=False)
    return MeasuredDifference(float(tested.statistic), effect, float(tested.pvalue))


def equal_bins(today: Floats, reference: Floats, most: int = WIDER_BINS) -> NDArray[np.intp]:
    """(B,) the wider bin of each bin: neighbours that hold about 1 / ``most`` of the rows, both sides alike.

    Both sides count, the reference as much as today: a bin that is new today must not be merged away.
    """
    share = today / today.sum() + reference / reference.sum()
    before = np.cumsum(share) - share
    _, bins = np.unique((before * most / share.sum() + 1e-9).astype(np.intp), return_inverse=True)
    return np.asarray(bins, dtype=np.intp)


def compare_distributions(today: Floats, reference: Floats) -> MeasuredDifference:
    """Largest distance of the distribution functions of two histograms (B,), with its p-value.

    It is the test of `scipy.stats.ks_2samp` on the rows, each moved to the middle of its bin; rows that tie
    make its asymptotic p-value too large rather than too small. Both hold a row at least.
    """
    from scipy.stats import kstwo

    n, m = float(today.sum()), float(reference.sum())
    distance = float(np.abs(np.cumsum(today) / n - np.cumsum(reference) / m).max())
    rows = round(n * m / (n + m))
    return MeasuredDifference(distance, distance, float(np.clip(kstwo.sf(distance, rows), 0.0, 1.0)))


# Permutations of vectors drawn at a time, and how many as large as what was seen settle that nothing is seen.
BATCH = 250
ENOUGH = 20
# What two sums of the same numbers in another order may differ by.
ROUNDING = 1e-7

Members = NDArray[np.float32]


@dataclass(frozen=True)
class Samples:
    """Samples of vectors (n, d) and (m, d), of which every head is a sample as well, and a seed."""

    today: Floats
    reference: Floats
    seed: int

    def lengths(self, rows: int) -> tuple[int, int]:
        """How many vectors `compared` reads of each."""
        return min(rows, len(self.today)), min(rows, len(self.reference))

    def compared(self, rows: int, permutations: int) -> MeasuredDifference:
        """`compare_vectors` on at most ``rows`` of each."""
        return compare_vectors(self.today[:rows], self.reference[:rows], permutations, self.seed)


def compare_vectors(today: Floats, reference: Floats, permutations: int, seed: int) -> MeasuredDifference:
    """Unbiased squared discrepancy of samples (n, d) and (m, d), its root, and its p-value; n, m at least 2.

    The kernel is Gaussian, its width the median distance of all rows, so that the root lies between 0 and
    about 1.4 whatever the units. Rows are permuted up to ``permutations`` times, by ``seed``; once ENOUGH of
    them give as much as was seen, p is their share and no more are drawn, which leaves it valid. Without any
    permutation p is 1.
    Source: Gretton et al. 2012, "A kernel two-sample test", lemma 6; Besag and Clifford 1991 (stopping).
    """
    kernel, n = gaussian_kernel(today, reference), len(today)
    members = np.zeros((BATCH, len(kernel)), dtype=np.float32)
    members[:, :n] = 1
    seen = float(squared_discrepancies(kernel, members[:1])[0])
    draw = np.random.default_rng(seed)

    def as_large(batch: int) -> NDArray[np.bool_]:
        return squared_discrepancies(kernel, draw.permuted(members[:batch], axis=1)) >= seen - ROUNDING

    p = permutation_p(as_large, permutations, BATCH)
    return MeasuredDifference(seen, math.sqrt(max(seen, 0.0)), p)


def permutation_p(as_large: Callable[[int], NDArray[np.bool_]], permutations: int, batch: int) -> float:
    """The share of permutations that give what was seen or more, the observed order being one of them.

    ``as_large(R)`` draws R, at most ``batch``, and says which do. Once ENOUGH do, p is their share so far.
    """
    tried = reached = 0
    while tried < permutations:
        larger = as_large(min(batch, permutations - tried))
        if reached + larger.sum() >= ENOUGH:
            last = int(np.flatnonzero(np.cumsum(larger) == ENOUGH - reached)[0]) + 1
            return ENOUGH / (tried + last)
        reached += int(larger.sum())
        tried += len(larger)
    return (reached + 1) / (permutations + 1)


def gaussian_kernel(today: Floats, reference: Floats) -> NDArray[np.float32]:
    """exp(-d^2 / (2 w^2)) of all pairs, w their median distance; of the positive ones where most are 0.

    (n + m, n + m) with zeros on its diagonal; the first n are today's.
    """
    from scipy.spatial.distance import pdist, squareform

    distances = pdist(np.concatenate([today, reference]))
    width = float(np.median(distances))
    if width == 0:
        width = float(np.median(distances[distances > 0])) if distances.any() else 1.0
    kernel = squareform(np.exp(-0.5 * (distances / width) ** 2))
    # Single precision is enough for comparing permutations and twice as fast: sums are of some 1000 terms.
    return kernel.astype(np.float32)


def squared_discrepancies(kernel: NDArray[np.float32], member: Members) -> Floats:
    """(R,) unbiased estimates; each row of ``member`` (R, n + m) is 1 for n rows and 0 for the others.

    May be negative. Mean of the kernel over pairs within one sample, plus that within the other, less twice
    that between them.
    """
    n = int(member[0].sum())
    m = len(kernel) - n
    within = np.einsum("rj,rj->r", member @ kernel, member, dtype=np.float64)
    by_row = kernel.sum(axis=1, dtype=np.float64)
    to_all = np.einsum("rj,j->r", member, by_row)
    between = to_all - within
    rest = by_row.sum() - to_all - between
    return np.asarray(within / (n * (n - 1)) + rest / (m * (m - 1)) - 2 * between / (n * m))


HISTOGRAMS_A_BATCH = 2000
# NumPy draws from fewer than 10^9 rows. A larger reference counts as this many, of the same distribution.
MOST_ROWS = 10**8
# What two sums of the same numbers in another order may differ by.
MEAN_ROUNDING = 1e-12
CENTRES = (np.arange(BINS) + 0.5) / BINS


@dataclass(frozen=True)
class Means:
    """Histograms of probabilities (BINS,) of today and of a reference, and a seed for permutations."""

    today: Floats
    reference: Floats
    seed: int

    def compared(self, permutations: int, least_effect: float) -> MeasuredDifference:
        """`compare_means`; an effect below ``least_effect`` flags nothing and gets p = 1 without a draw."""
        seen = compare_means(self.today, self.reference, 0, self.seed)
        if seen.effect < least_effect:
            return seen
        return compare_means(self.today, self.reference, permutations, self.seed)


def compare_means(today: Floats, reference: Floats, permutations: int, seed: int) -> MeasuredDifference:
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

    def as_far(batch: int) -> NDArray[np.bool_]:
        drawn = draw.multivariate_hypergeometric(pooled[used], n, size=batch, method="marginals")
        return np.abs(moved(drawn @ CENTRES[used])) >= abs(shift) - MEAN_ROUNDING

    return MeasuredDifference(shift, abs(shift), permutation_p(as_far, permutations, HISTOGRAMS_A_BATCH))
