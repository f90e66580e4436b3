"""What the spectrum of the Gram matrix says by itself: its largest eigenvalue, its von Neumann entropy."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from sgpu.methods.base import Floats, Method, of_all


def largest_eigenvalue(eigenvalues: Floats) -> Floats:
    """Largest eigenvalue over N, in [1/N, 1]; 1 when all N answers have one embedding.

    ``eigenvalues`` is (..., N), in any order, sum N; returns (...). A row that holds NaN gives NaN.
    """
    return np.max(eigenvalues, axis=-1) / np.shape(eigenvalues)[-1]


LARGEST_EIGENVALUE = Method(
    name="largest_eigenvalue",
    title="Largest eigenvalue",
    needs=frozenset({"eigenvalues"}),
    sign="confidence",
    compute=of_all("eigenvalues", largest_eigenvalue),
    reference="first entry of the semantic consistency vector, SGPU paper",
)


def spectral_entropy(eigenvalues: Floats) -> Floats:
    """-sum_i (l_i/N) ln(l_i/N) in nats, in [0, ln N], with 0 ln 0 = 0; higher = less certain.

    ``eigenvalues`` is (..., N), sum N; returns (...). Rounding below 0 counts as 0; a row that holds NaN
    gives NaN.

    Source: the von Neumann entropy of the density matrix G/N (Nikitin et al. 2024, section 3).
    """
    shares = np.maximum(eigenvalues, 0.0) / np.shape(eigenvalues)[-1]
    # One eigenvalue of N can come out a rounding above 1 and its entropy a rounding below 0.
    return np.maximum(np.sum(entr(shares), axis=-1), 0.0)


SPECTRAL_ENTROPY = Method(
    name="spectral_entropy",
    title="Spectral entropy",
    needs=frozenset({"eigenvalues"}),
    sign="uncertainty",
    compute=of_all("eigenvalues", spectral_entropy),
    reference="Nikitin et al. 2024 (von Neumann entropy), on the Gram matrix of the sentence embeddings",
)
