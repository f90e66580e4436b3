"""Semantic volume: how much space the hidden states of N answers span. Three methods are built on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError, UsageError
from sgpu.methods.base import Floats


def semantic_volume(vectors: Floats, alpha: float) -> Floats:
    """ln det(V V^T + alpha I) in nats of N vectors: (..., N, D) -> (...).

    NaN where a set holds NaN, and where alpha drowns in the rounding of V V^T. Raises UsageError unless
    alpha > 0.

    Source: the paper, eq. semantic_volume.
    """
    if not alpha > 0:
        raise UsageError(f"alpha is {alpha}; it must be above 0, or equal answers have no volume at all")
    complete = np.asarray(~np.isnan(vectors).any(axis=(-2, -1)))
    points = np.where(complete[..., None, None], vectors, 0.0)
    gram = points @ np.swapaxes(points, -1, -2)
    n = gram.shape[-1]
    rounding = n * np.finfo(np.float64).eps * np.trace(gram, axis1=-2, axis2=-1)
    _, log_determinant = np.linalg.slogdet(gram + alpha * np.eye(n))
    volume: Floats = np.where(complete & (rounding < alpha), log_determinant, np.nan)[()]
    return volume


def mask_nonfinite_sets(hidden: ArrayLike) -> Floats:
    """Return (..., N, D) hidden states as float64; a set with a value that is not finite becomes all NaN.

    Raises DataError for fewer than two dimensions, no answers or no features.
    """
    states = np.asarray(hidden, dtype=np.float64)
    if states.ndim < 2 or 0 in states.shape[-2:]:
        raise DataError(f"hidden states have shape {states.shape}; (..., N, D) with N, D >= 1 is needed")
    finite = np.isfinite(states).all(axis=(-2, -1), keepdims=True)
    return np.where(finite, states, np.nan)


def unit_vectors(states: Floats) -> Floats:
    """Each state divided by its L2 norm; NaN for a state of zeros, which has no direction."""
    norms = np.linalg.norm(states, axis=-1, keepdims=True)
    return np.divide(states, norms, out=np.full_like(states, np.nan), where=norms > 0)
