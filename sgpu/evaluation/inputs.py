"""What every metric demands of its arrays. Rows with anything missing are left out by the caller."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError, UsageError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def checked_labels(label: ArrayLike) -> Floats:
    """(n,) labels as float64; raises DataError unless all are 0 or 1."""
    labels = np.asarray(label, dtype=np.float64)
    bad = np.flatnonzero((labels != 0) & (labels != 1))
    if labels.ndim != 1 or bad.size:
        problem = f"row {bad[0]} is {labels.flat[bad[0]]}" if bad.size else f"the shape is {labels.shape}"
        raise DataError(
            f"labels must be a vector of 0 and 1, but {problem}. Leave out and count rows without a label."
        )
    return labels


def checked_scores(confidence: ArrayLike, n: int) -> Floats:
    """(n,) scores as float64, infinities allowed; raises DataError on NaN or another length."""
    scores = np.asarray(confidence, dtype=np.float64)
    if scores.shape != (n,):
        raise DataError(f"{n} labels need scores of shape ({n},), got {scores.shape}.")
    bad = np.flatnonzero(np.isnan(scores))
    if bad.size:
        raise DataError(
            f"score of row {bad[0]} is NaN ({bad.size} such rows). Leave them out and count them."
        )
    return scores


def checked_probabilities(probability: ArrayLike, n: int) -> Floats:
    """(n,) probabilities as float64; raises DataError unless all lie in [0, 1]."""
    probabilities = checked_scores(probability, n)
    bad = np.flatnonzero((probabilities < 0) | (probabilities > 1))
    if bad.size:
        raise DataError(
            f"probability of row {bad[0]} is {probabilities[bad[0]]}, outside [0, 1]. "
            "Map scores to probabilities first: see sgpu.evaluation.mapping."
        )
    return probabilities


def check_level(level: float) -> None:
    """Raise UsageError unless ``level`` is a confidence level."""
    if not 0 < level < 1:
        raise UsageError(f"level is {level}; a confidence level lies between 0 and 1.")
