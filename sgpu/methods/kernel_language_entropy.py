"""Kernel language entropy: von Neumann entropy of a heat kernel on the graph of entailments."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm
from scipy.special import entr

from sgpu.errors import UsageError
from sgpu.methods.base import CellFeatures, Floats, Method
from sgpu.methods.clustering import missing_answers, nli_relation, pair_probabilities

Laplacian = Literal["unnormalised", "normalised"]
# Of an entailment, a neutral pair and a contradiction, in each direction; Nikitin et al. 2024, App. C.
WEIGHTS = (1.0, 0.5, 0.0)


def kernel_language_entropy(
    entail: ArrayLike,
    contradict: ArrayLike,
    t: float = 0.3,
    *,
    weights: tuple[float, float, float] = WEIGHTS,
    laplacian: Laplacian = "unnormalised",
    one_hot: bool = True,
    scale: bool = True,
) -> Floats:
    """Von Neumann entropy of the unit-diagonal heat kernel expm(-t L) / N; higher = less certain.

    ``entail`` and ``contradict`` are (..., N, N), [i, j] the probability that answer i does so to answer
    j; what is left of 1 is neutral, the diagonals do not matter; returns (...). Edges are the ``weights``
    (entail, neutral, contradict) of both directions added: of the likeliest class, or of all classes by
    their probabilities if not ``one_hot``. ``scale`` divides the entropy (nats) by ln N, to [0, 1].

    0 for one answer. With many answers large ``t`` melts every graph into one meaning: at N = 20 and
    t = 0.3, N answers that are all neutral have 0.11 of the entropy of N contradictions. An answer with
    NaN on the diagonal of ``entail`` is missing and left out; NaN if none is left, or if a pair of the
    others is unknown (NaN).

    Raises UsageError for a negative t or weight, or a Laplacian that there is not;
    DataError unless both arrays are (..., N, N).

    Source: Nikitin et al. 2024, KLE with a heat kernel; defaults of its App. C.
    """
    if not 0 <= t < np.inf or not min(weights) >= 0:
        raise UsageError(
            f"t is {t} and weights are {weights}; a heat kernel needs both finite and at least 0."
        )
    entailed, contradicted = pair_probabilities(entail, contradict)
    present = ~missing_answers(entailed)
    pairs = present[..., :, None] & present[..., None, :]
    others = pairs & ~np.eye(present.shape[-1], dtype=bool)
    graph = np.where(others, _edges(entailed, contradicted, weights, one_hot), 0)
    unknown = np.isnan(graph).any(axis=(-2, -1))
    kernel = expm(-t * _laplacian(np.where(unknown[..., None, None], 0, graph), laplacian))
    diagonal = np.sqrt(np.diagonal(kernel, axis1=-2, axis2=-1))
    n = present.sum(axis=-1)
    correlations = np.where(pairs, kernel / (diagonal[..., :, None] * diagonal[..., None, :]), 0)
    density = correlations / np.maximum(n, 1)[..., None, None]
    entropy = entr(np.linalg.eigvalsh(density).clip(min=0)).sum(axis=-1).clip(min=0)
    if scale:
        entropy = entropy / np.log(np.maximum(n, 2))
    return np.where(unknown | (n == 0), np.nan, np.where(n == 1, 0, entropy))


def _edges(entail: Floats, contradict: Floats, weights: tuple[float, float, float], one_hot: bool) -> Floats:
    """(..., N, N) symmetric edge weights, NaN where a direction is unknown."""
    entails, neutral, contradicts = weights
    if one_hot:
        # In the order of the relations; UNKNOWN is -1, the last.
        directed = np.array([contradicts, neutral, entails, np.nan])[nli_relation(entail, contradict)]
    else:
        directed = entails * entail + neutral * (1 - entail - contradict) + contradicts * contradict
    return directed + np.swapaxes(directed, -1, -2)


def _laplacian(graph: Floats, kind: Laplacian) -> Floats:
    """D - W, or D^-1/2 (D - W) D^-1/2 with 0 for a node without edges."""
    degrees = graph.sum(axis=-1)
    plain = degrees[..., None] * np.eye(graph.shape[-1]) - graph
    match kind:
        case "unnormalised":
            return plain
        case "normalised":
            root = np.sqrt(np.divide(1, degrees, out=np.zeros_like(degrees), where=degrees > 0))
            return root[..., :, None] * plain * root[..., None, :]
    raise UsageError(f"laplacian is {kind!r}; there are 'unnormalised' and 'normalised'.")


def configure_kernel_language_entropy(
    t: float = 0.3,
    *,
    weights: tuple[float, float, float] = WEIGHTS,
    laplacian: Laplacian = "unnormalised",
    one_hot: bool = True,
) -> Method:
    """Return the method with other settings than the KLE paper's."""

    def each_question(features: CellFeatures) -> Floats:
        assert features.entail is not None and features.contradict is not None
        entropy = kernel_language_entropy(
            features.entail, features.contradict, t, weights=weights, laplacian=laplacian, one_hot=one_hot
        )
        # Equal graphs whose answers stand in another order differ by the rounding of eigenvalues; without
        # it they tie, as they should, on every machine.
        return np.round(entropy, 12)

    return Method(
        name="kernel_language_entropy",
        title="Kernel language entropy (heat)",
        needs=frozenset({"entail", "contradict"}),
        sign="uncertainty",
        compute=each_question,
        reference="Nikitin et al. 2024",
        settings={"t": t, "weights": weights, "laplacian": laplacian, "one_hot": one_hot, "scaled": True},
    )


METHOD = configure_kernel_language_entropy()
