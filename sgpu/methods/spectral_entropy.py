"""Von Neumann entropy of the Gram matrix: over how many meanings the sample is spread."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from sgpu.methods.base import CellFeatures, Floats, Method


def spectral_entropy(eigenvalues: Floats) -> Floats:
    """-sum_i (l_i/N) ln(l_i/N) in nats, in [0, ln N], with 0 ln 0 = 0; higher = less certain.

    ``eigenvalues`` is (..., N), sum N; returns (...). Rounding below 0 counts as 0; a row that holds NaN
    gives NaN.

    Source: the von Neumann entropy of the density matrix G/N (Nikitin et al. 2024, section 3).
    """
    shares = np.maximum(eigenvalues, 0.0) / np.shape(eigenvalues)[-1]
    # One eigenvalue of N can come out a rounding above 1 and its entropy a rounding below 0.
    return np.maximum(np.sum(entr(shares), axis=-1), 0.0)


def _each_question(features: CellFeatures) -> Floats:
    assert features.eigenvalues is not None
    return spectral_entropy(features.eigenvalues)


METHOD = Method(
    name="spectral_entropy",
    title="Spectral entropy",
    needs=frozenset({"eigenvalues"}),
    sign="uncertainty",
    compute=_each_question,
    reference="Nikitin et al. 2024 (von Neumann entropy), on the Gram matrix of the sentence embeddings",
)
