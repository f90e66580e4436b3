"""Semantic entropy: over how many meanings the model's probability is spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from sgpu.errors import DataError
from sgpu.methods.base import CellFeatures, Floats, Method
from sgpu.methods.clustering import RULE
from sgpu.methods.likelihood import LOG_PROBS, answer_log_likelihoods


def semantic_entropy(
    log_likelihoods: ArrayLike, clusters: ArrayLike, n_tokens: ArrayLike | None = None
) -> Floats:
    """-sum_k P_k ln P_k in nats, in [0, ln N], 0 ln 0 = 0; higher = less certain.

    P_k is the sum, over the answers of cluster k, of their probabilities normalised over the response
    set. ``log_likelihoods`` is (..., N), the joint log-probability of each answer; ``clusters`` (..., N),
    equal ids meaning the same; returns (...). Given ``n_tokens`` (..., N), each log-likelihood is divided
    by the answer's number of tokens first, as Farquhar et al.'s code does; the paper's equation is joint.

    Answers with id -1 are missing and not counted. NaN if none is left, if a counted one's likelihood is
    NaN, or if all have probability 0 (``-inf``), when nothing is known of their shares. One cluster gives
    exactly 0. Raises DataError where the shapes differ.

    Source: the paper, Preliminaries, the Rao-Blackwellised estimator; Kuhn et al. 2023.
    """
    logs, ids = np.asarray(log_likelihoods, dtype=np.float64), np.asarray(clusters)
    if logs.shape != ids.shape or (n_tokens is not None and np.shape(n_tokens) != ids.shape):
        raise DataError(
            f"log-likelihoods have shape {logs.shape}, clusters {ids.shape}"
            + ("" if n_tokens is None else f", n_tokens {np.shape(n_tokens)}")
            + "; one number an answer is needed in each."
        )
    counted = ids >= 0
    if n_tokens is not None:
        logs = logs / np.where(counted, n_tokens, 1)
    logs = np.where(counted, logs, -np.inf)
    highest = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # -inf minus -inf where all are impossible or missing: NaN
        mass = np.exp(logs - highest)  # joint probabilities of e^-800 would vanish unshifted
    same = ids[..., :, None] == ids[..., None, :]
    # Both sums run over N terms in one order, so that a single cluster's share is 1 and not 1 - 1e-16; a
    # product of matrices would not keep it.
    of_cluster = np.where(same, mass[..., None, :], 0.0).sum(axis=-1)
    of_all = mass.sum(axis=-1, keepdims=True)
    return 0.0 - xlogy(mass / of_all, of_cluster / of_all).sum(axis=-1)  # 0 of one cluster, never -0


def configure_semantic_entropy(*, length_normalised: bool = False) -> Method:
    """Return the method with the paper's joint probabilities, or with each answer's per-token mean."""

    def each_question(features: CellFeatures) -> Floats:
        assert features.token_logprobs is not None and features.clusters is not None
        n = features.clusters.shape[-1]
        log_likelihoods, n_tokens = answer_log_likelihoods(features.token_logprobs, n)
        clusters = np.where(n_tokens > 0, features.clusters, -1)
        return semantic_entropy(log_likelihoods, clusters, n_tokens if length_normalised else None)

    return Method(
        name="semantic_entropy",
        title="Semantic entropy",
        needs=frozenset({"token_logprobs", "clusters"}),
        sign="uncertainty",
        compute=each_question,
        reference="SGPU paper, Preliminaries; Kuhn et al. 2023; Farquhar et al. 2024",
        settings={"length_normalised": length_normalised, "log_probs": LOG_PROBS, "clusters": RULE},
    )


METHOD = configure_semantic_entropy()
NORMALISED = replace(
    configure_semantic_entropy(length_normalised=True),
    name="normalised_semantic_entropy",
    title="Semantic entropy, length-normalised",
)
