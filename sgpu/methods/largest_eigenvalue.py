"""The largest eigenvalue of the Gram matrix: how much of the sample is one meaning."""

from __future__ import annotations

import numpy as np

from sgpu.methods.base import CellFeatures, Floats, Method


def largest_eigenvalue(eigenvalues: Floats) -> Floats:
    """Largest eigenvalue over N, in [1/N, 1]; 1 when all N answers have one embedding.

    ``eigenvalues`` is (..., N), in any order, sum N; returns (...). A row that holds NaN gives NaN.
    """
    return np.max(eigenvalues, axis=-1) / np.shape(eigenvalues)[-1]


def _each_question(features: CellFeatures) -> Floats:
    assert features.eigenvalues is not None
    return largest_eigenvalue(features.eigenvalues)


METHOD = Method(
    name="largest_eigenvalue",
    title="Largest eigenvalue",
    needs=frozenset({"eigenvalues"}),
    sign="confidence",
    compute=_each_question,
    reference="first entry of the semantic consistency vector, SGPU paper",
)
