"""Where most answers agree and are wrong: how many such sets the classifier finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError


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
    most, given, truth = (np.asarray(values, dtype=np.float64) for values in (share, probability, label))
    if not most.shape == given.shape == truth.shape or most.ndim != 1:
        raise DataError(
            f"share, probability and label have shapes {most.shape}, {given.shape} and {truth.shape}; "
            "three equal ones (Q,) are needed"
        )
    consistent = most > 0.5
    known = consistent & ~np.isnan(given) & ~np.isnan(truth)
    kept, right = given[known] >= threshold, truth[known] == 1
    return Confusion(
        tp=int((kept & right).sum()),
        fp=int((kept & ~right).sum()),
        tn=int((~kept & ~right).sum()),
        fn=int((~kept & right).sum()),
        n_missing=int(consistent.sum() - known.sum()),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
