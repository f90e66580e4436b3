"""Which answers mean the same: what one says of another, and the clusters that follow."""

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


RULE = "strict bidirectional entailment with the cluster's first answer, first match"


def entailment_clusters(entail: ArrayLike, contradict: ArrayLike, *, reassign: bool = False) -> Ints:
    """Cluster ids of the N answers of each response set: (..., N, N) twice -> (..., N).

    The rule: two answers mean the same if each entails the other, entailment being the likeliest of the
    three classes (`nli_relation`). Answers are taken in order; one that means the same as the *first*
    answer of a cluster joins it, the earliest such cluster winning, else it opens a cluster. Entailment
    is not transitive, so the order matters: answers 0 ~ 1 and 1 ~ 2 give [0, 0, 1] if not also 0 ~ 2.

    Ids run from 0 in order of first appearance. A missing answer (NaN on the diagonal of ``entail``) has
    id -1, and so have all answers of a set in which the relation of two present answers is unknown (NaN).
    An empty answer is an answer: it clusters by what the entailment model says of it.

    ``reassign`` is the loop of Farquhar et al.'s published code, where the *last* matching cluster wins:
    0 ~ 2 and 1 ~ 2 give [0, 1, 1] instead of [0, 1, 0].

    Raises DataError unless both are (..., N, N).

    Source: Kuhn et al. 2023, algorithm 1; Farquhar et al. 2024.
    """
    entailed, contradicted = pair_probabilities(entail, contradict)
    relation, missing = nli_relation(entailed, contradicted), missing_answers(entailed)
    same = (relation == ENTAILS) & (np.swapaxes(relation, -1, -2) == ENTAILS)
    n = same.shape[-1]
    ids = np.full(missing.shape, -1, dtype=np.int64)
    n_clusters = np.zeros(missing.shape[:-1], dtype=np.int64)
    for i in range(n):
        opens = (ids[..., i] < 0) & ~missing[..., i]
        free = np.ones_like(missing) if reassign else ids < 0
        joins = opens[..., None] & same[..., i, :] & free & (np.arange(n) > i)
        joins[..., i] = opens
        ids = np.where(joins, n_clusters[..., None], ids)
        n_clusters += opens
    no_pair = missing[..., :, None] | missing[..., None, :] | np.eye(n, dtype=bool)
    unknown = ((relation == UNKNOWN) & ~no_pair).any(axis=(-2, -1))
    return np.where(unknown[..., None], -1, ids)
