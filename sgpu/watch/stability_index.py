"""The population stability index: how far two histograms are apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from sgpu.evaluation.inputs import Floats
from sgpu.watch.difference import Difference

BINS = 10
# Added to every count, so that a bin that one side leaves empty is far but not infinitely far.
PSEUDO_COUNT = 0.5


def stability_index(today: Floats, reference: Floats) -> float:
    """The sum over bins of (share today - share before) x ln(share today / share before), for counts (B,).

    It is the symmetric Kullback-Leibler divergence. Source: Siddiqi 2006, "Credit Risk Scorecards".
    """
    one, other = (
        (counts + PSEUDO_COUNT) / (counts.sum() + PSEUDO_COUNT * len(counts)) for counts in (today, reference)
    )
    return float(((one - other) * np.log(one / other)).sum())


def compare_counts(today: Floats, reference: Floats) -> Difference:
    """Index of two histograms (B,) over about BINS wider bins, with chi-squared of homogeneity and its p.

    Both hold a row at least. The index times n m / (n + m) has the distribution of chi-squared where nothing
    changed (Yurdakul and Naranjo 2020), whose own p-value is exact enough for fewer rows.
    """
    used = today + reference > 0
    today, reference = today[used], reference[used]
    bins = equal_bins(today, reference)
    wide = np.stack([np.bincount(bins, today), np.bincount(bins, reference)])
    effect = stability_index(wide[0], wide[1])
    if wide.shape[1] == 1:
        return Difference(0.0, effect, 1.0)
    tested = chi2_contingency(wide, correction=False)
    return Difference(float(tested.statistic), effect, float(tested.pvalue))


def equal_bins(today: Floats, reference: Floats, most: int = BINS) -> NDArray[np.intp]:
    """(B,) the wider bin of each bin: neighbours that hold about 1 / ``most`` of the rows, both sides alike.

    Both sides count, the reference as much as today: a bin that is new today must not be merged away.
    """
    share = today / today.sum() + reference / reference.sum()
    before = np.cumsum(share) - share
    _, bins = np.unique((before * most / share.sum() + 1e-9).astype(np.intp), return_inverse=True)
    return np.asarray(bins, dtype=np.intp)
