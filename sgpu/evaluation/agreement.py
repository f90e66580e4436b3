"""How far two judges agree beyond chance."""

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
    one: ArrayLike, other: ArrayLike, *, n_resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Agreement:
    """Compare votes ``one`` and ``other``, (n,) of 1, 0 or NaN/None (missing: left out and counted).

    Items are resampled for the intervals. Raises DataError for other votes or unequal lengths.
    Source: Cohen 1960.
    """
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.shape != second.shape:
        raise DataError(f"the judges voted on {first.shape} and {second.shape} items; align them first.")
    known = ~(np.isnan(first) | np.isnan(second))
    a, b = checked_labels(first[known]), checked_labels(second[known])
    votes = np.stack([np.ones_like(a), a == b, a, b])

    def kappa(counts: Floats) -> dict[str, Floats]:
        n, equal, a_yes, b_yes = votes @ counts
        # n squared times: observed agreement, agreement by chance.
        by_chance = a_yes * b_yes + (n - a_yes) * (n - b_yes)
        return {
            "kappa": ratio(equal * n - by_chance, n * n - by_chance),
            "agreement": ratio(equal, n),
        }

    found = intervals({"votes": [kappa]}, len(a), n_resamples=n_resamples, level=level, seed=seed)["votes"]
    return Agreement(found["kappa"], found["agreement"], len(a), len(known) - len(a))
