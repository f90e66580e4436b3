"""What one answer says of another: the likeliest of contradicts, neutral, entails."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError
from sgpu.methods.base import Floats, Ints

UNKNOWN, CONTRADICTS, NEUTRAL, ENTAILS = -1, 0, 1, 2


def pair_probabilities(entail: ArrayLike, contradict: ArrayLike) -> tuple[Floats, Floats]:
    """Both as float64 arrays of one shape (..., N, N); raises DataError where they are not."""
    first, second = np.asarray(entail, dtype=np.float64), np.asarray(contradict, dtype=np.float64)
    if first.shape != second.shape or first.ndim < 2 or first.shape[-1] != first.shape[-2]:
        raise DataError(
            f"entail has shape {first.shape} and contradict {second.shape}; both need (..., N, N), "
            "one number for every ordered pair of answers."
        )
    return first, second


def nli_relation(entail: Floats, contradict: Floats) -> Ints:
    """The likeliest class of every ordered pair: CONTRADICTS, NEUTRAL, ENTAILS, or UNKNOWN where NaN.

    ``entail`` and ``contradict`` are probabilities of one shape; what is left of 1 is neutral. A tie goes
    to the class that binds the answers less: an entailment has to be likelier than either other class.
    """
    probabilities = np.stack([contradict, 1.0 - entail - contradict, entail])
    likeliest = probabilities.argmax(axis=0)  # of equals the first
    return np.where(np.isnan(probabilities).any(axis=0), UNKNOWN, likeliest)


def missing_answers(entail: Floats) -> NDArray[np.bool_]:
    """(..., N, N) -> (..., N): which answers are missing, said by a NaN on the diagonal."""
    return np.isnan(np.diagonal(entail, axis1=-2, axis2=-1))
