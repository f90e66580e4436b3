"""How far two judges agree beyond chance, and decisions with labels where most answers of a set agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError
from sgpu.evaluation.bootstrap import Interval, intervals
from sgpu.evaluation.inputs import Floats, checked_labels
from sgpu.evaluation.ranking import ratio


@dataclass(frozen=True)
class Agreement:
    """Cohen's kappa and share of equal votes over the n items that both judges could read."""

    kappa: Interval  # value NaN where both judges always cast one and the same vote
    agreement: Interval
    n: int
    n_missing: int


def agreement(
    votes_a: ArrayLike, votes_b: ArrayLike, *, n_resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Agreement:
    """Compare ``votes_a`` and ``votes_b``, (n,) of 1, 0 or NaN/None (missing: left out and counted).

    Items are resampled for the intervals. Raises DataError for other votes or unequal lengths.
    Source: Cohen 1960.
    """
    first, second = np.asarray(votes_a, dtype=np.float64), np.asarray(votes_b, dtype=np.float64)
    if first.shape != second.shape:
        raise DataError(f"the judges voted on {first.shape} and {second.shape} items; align them first.")
    voted = ~(np.isnan(first) | np.isnan(second))
    a, b = checked_labels(first[voted]), checked_labels(second[voted])
    votes = np.stack([np.ones_like(a), a == b, a, b])

    def kappa(counts: Floats) -> dict[str, Floats]:
        n, equal, a_yes, b_yes = votes @ counts
        # n squared times: observed agreement, agreement by chance.
        by_chance = a_yes * b_yes + (n - a_yes) * (n - b_yes)
        return {
            "kappa": ratio(equal * n - by_chance, n * n - by_chance),
            "agreement": ratio(equal, n),
        }

    by_name = intervals({"votes": [kappa]}, len(a), n_resamples=n_resamples, level=level, seed=seed)["votes"]
    return Agreement(by_name["kappa"], by_name["agreement"], len(a), len(voted) - len(a))


@dataclass(frozen=True)
class Confusion:
    """Counts over the consistent response sets: positive is a probability of at least the threshold.

    ``tn`` are consistent, wrong, and found to be uncertain. ``n_missing`` are consistent sets without a label
    or a probability; they are in none of the counts.
    """

    tp: int
    fp: int
    tn: int
    fn: int
    n_missing: int

    @property
    def n(self) -> int:
        return self.tp + self.fp + self.tn + self.fn

    @property
    def recall(self) -> float:
        """Right sets that are kept, of all right ones; NaN if there are none."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def precision(self) -> float:
        """Right sets of those that are kept; NaN if none is kept."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def accuracy(self) -> float:
        """Right decisions of all; NaN without consistent sets."""
        return _share(self.tp + self.tn, self.n)


def consistent_confusion(
    share: ArrayLike, probability: ArrayLike, label: ArrayLike, threshold: float = 0.5
) -> Confusion:
    """The decisions of the classifier on sets of which more than half of the answers mean the same; all (Q,).

    ``share`` is that of the most frequent meaning, ``probability`` and ``label`` (1, 0) may be NaN. Raises
    DataError for arrays that do not fit together.

    Source: the paper, appendix "Beyond self consistency" (a meaning shared by more than 10 of 20 answers).
    """
    shares, p, y = (np.asarray(values, dtype=np.float64) for values in (share, probability, label))
    if not shares.shape == p.shape == y.shape or shares.ndim != 1:
        raise DataError(
            f"share, probability and label have shapes {shares.shape}, {p.shape} and {y.shape}; "
            "three equal ones (Q,) are needed"
        )
    consistent = shares > 0.5
    complete = consistent & ~np.isnan(p) & ~np.isnan(y)
    kept, right = p[complete] >= threshold, y[complete] == 1
    return Confusion(
        tp=int((kept & right).sum()),
        fp=int((kept & ~right).sum()),
        tn=int((~kept & ~right).sum()),
        fn=int((~kept & right).sum()),
        n_missing=int(consistent.sum() - complete.sum()),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
