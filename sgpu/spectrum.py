"""Gram matrix and spectrum of a response set: from N unit embeddings to N eigenvalues (pure NumPy)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows that an encoder normalised in float32 are within 1e-6 of a unit norm; anything past this is not
# a rounding error but an embedding that was never normalised.
UNIT_TOLERANCE = 1e-4


def gram(embeddings: NDArray[Any]) -> NDArray[np.float64]:
    """Inner products of the rows: (..., N, D) -> (..., N, N) float64.

    Products are taken in float32 (float64 if that is what comes in) and cast afterwards: ten times
    faster than float64, and equal rows still give exactly equal columns, so that their eigenvalues
    vanish to 1e-15. Raises ValueError for fewer than two dimensions or no rows.
    """
    rows = np.asarray(embeddings)
    if rows.ndim < 2 or rows.shape[-2] == 0 or rows.shape[-1] == 0:
        raise ValueError(f"embeddings must have shape (..., N, D) with N, D >= 1, not {rows.shape}")
    if rows.dtype != np.float64:
        rows = rows.astype(np.float32, copy=False)
    return np.matmul(rows, np.swapaxes(rows, -1, -2)).astype(np.float64, copy=False)


def spectrum(embeddings: NDArray[Any]) -> NDArray[np.float64]:
    """Eigenvalues of the Gram matrix of N unit rows: (..., N, D) -> (..., N) float64.

    Descending, not negative, and sum N exactly up to float64 rounding (the paper's semantic consistency
    vector). Raises ValueError naming the first row that is not finite or not of unit norm.
    """
    products = gram(embeddings)
    _check_unit_rows(products)
    n = products.shape[-1]
    # Sorted ascending by LAPACK; numerically zero ones may come out as -1e-15.
    values = np.linalg.eigvalsh(products)[..., ::-1].clip(min=0.0)
    # The trace of a float32 Gram matrix is off N by about 1e-6; the definition says N.
    return values * (n / values.sum(axis=-1, keepdims=True))


def condense(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what stands above the diagonal of symmetric matrices, row by row: (..., N, N) -> (..., P).

    P is N (N - 1) / 2; `expand` undoes it for matrices with ones on the diagonal.
    """
    rows, columns = np.triu_indices(products.shape[-1], 1)
    return np.asarray(products[..., rows, columns])


def expand(condensed: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return the (..., N, N) matrices with ones on the diagonal that `condense` made (..., P) numbers of."""
    matrices = np.ones((*condensed.shape[:-1], n, n))
    rows, columns = np.triu_indices(n, 1)
    matrices[..., rows, columns] = matrices[..., columns, rows] = condensed
    return matrices


def _check_unit_rows(products: NDArray[np.float64]) -> None:
    norms = np.sqrt(np.diagonal(products, axis1=-2, axis2=-1))
    # Written so that NaN counts as bad: every comparison with it is false.
    bad = ~(np.abs(norms - 1.0) <= UNIT_TOLERANCE)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"row {first[-1]}" + (f" of set {first[:-1]}" if len(first) > 1 else "")
        raise ValueError(
            f"{place} of the embeddings has norm {norms[first]:.6g}, not 1 within {UNIT_TOLERANCE:g}; "
            "L2-normalise each embedding and replace NaN or infinite values first"
        )
