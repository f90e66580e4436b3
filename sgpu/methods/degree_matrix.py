"""Degree matrix: how similar the answers are to each other on average."""

from __future__ import annotations

import numpy as np

from sgpu.methods.base import Floats, Method, of_all


def degree_matrix(similarities: Floats) -> Floats:
    """Return trace(N I - D) / N^2, D the diagonal of row sums: one minus the mean of all similarities.

    ``similarities`` is (..., N, N) with ones on the diagonal; returns (...). Higher = less certain; NaN where
    a similarity is NaN.

    >>> float(degree_matrix(np.ones((3, 3))))
    0.0

    Source: Lin et al. 2024, "Generating with Confidence", eq. 7, here with cosines of sentence embeddings.
    """
    return 1.0 - np.mean(similarities, axis=(-2, -1))


METHOD = Method(
    name="degree_matrix",
    title="Degree matrix",
    needs=frozenset({"similarities"}),
    sign="uncertainty",
    compute=of_all("similarities", degree_matrix),
    reference="Lin et al. 2024",
    settings={"similarity": "cosine of sentence embeddings"},
)
