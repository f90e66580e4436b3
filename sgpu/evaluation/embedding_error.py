"""How far embeddings are from ideal ones, which are equal for one meaning and orthogonal for two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError
from sgpu.spectrum import gram, spectrum


class EmbeddingError(NamedTuple):
    """The two largest eigenvalues, the largest error of a similarity, and the mean square of all errors."""

    lambda_1: float
    lambda_2: float
    epsilon: float
    mean_square: float


def embedding_error(embeddings: ArrayLike, clusters: ArrayLike) -> EmbeddingError:
    """Of N embeddings (N, D), normalised here, whose meanings ``clusters`` (N,) numbers.

    Raises DataError for fewer than two embeddings, for another number of clusters, and for an embedding
    without a direction.

    Source: the paper, lemma on the semantic consistency vector and its table "Impacts of Embeddings".
    """
    vectors, meaning = np.asarray(embeddings, dtype=np.float64), np.asarray(clusters)
    if vectors.ndim != 2 or len(vectors) < 2 or meaning.shape != vectors.shape[:1]:
        raise DataError(
            f"embeddings have shape {vectors.shape}, clusters {meaning.shape}; (N, D) and (N,) with N >= 2 "
            "are needed"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise DataError(f"embedding {int(np.argmin(lengths > 0))} is zero or not finite; it has no direction")
    unit = vectors / lengths[:, None]
    error = gram(unit) - (meaning[:, None] == meaning[None, :])
    first, second = spectrum(unit)[:2]
    return EmbeddingError(
        float(first), float(second), float(np.abs(error).max()), float(np.square(error).mean())
    )
