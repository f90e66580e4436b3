"""Our methods and metrics against lm-polygraph's and uqlm's own code on random inputs, to 1e-8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sgpu.evaluation.calibration import ece
from sgpu.evaluation.ranking import auarc, auroc
from sgpu.methods.cov_eigenscore import cov_eigenscore
from sgpu.methods.discrete_semantic_entropy import discrete_semantic_entropy
from sgpu.methods.kernel_language_entropy import kernel_language_entropy
from sgpu.methods.likelihood import predictive_entropy
from sgpu.methods.semantic_entropy import semantic_entropy

pytestmark = pytest.mark.parity
Q, N = 40, 12
close = pytest.approx


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def clusters(rng: np.random.Generator) -> np.ndarray:
    """(Q, N) ids in order of first appearance."""
    drawn = rng.integers(0, 5, (Q, N))
    return np.array([np.unique(row, return_inverse=True)[1] for row in drawn])


@pytest.fixture
def log_likelihoods(rng: np.random.Generator) -> np.ndarray:
    return -rng.exponential(5, (Q, N))


def classes(clusters: np.ndarray) -> dict[str, Any]:
    """Clusters as lm-polygraph keeps them."""
    of_class = [[np.flatnonzero(row == k).tolist() for k in range(row.max() + 1)] for row in clusters]
    return {"class_to_sample": of_class, "sample_to_class": [row.tolist() for row in clusters]}


@pytest.mark.parametrize("t", [0.1, 0.3, 1.0])
def test_kernel_language_entropy(peer: Any, rng: np.random.Generator, t: float) -> None:
    shares = rng.dirichlet([1, 1, 1], (Q, N, N))
    theirs = peer("lm_polygraph.estimators.kernel_language_entropy").KernelLanguageEntropy(t=t)(
        {"semantic_matrix_entail": shares[..., 0], "semantic_matrix_contra": shares[..., 1]}
    )
    # They weigh all three classes by probability; the likeliest class alone is our default.
    ours = kernel_language_entropy(shares[..., 0], shares[..., 1], t=t, one_hot=False)
    assert ours == close(np.array(theirs), abs=1e-8)


def test_kernel_language_entropy_of_the_likeliest_class(peer: Any, rng: np.random.Generator) -> None:
    likeliest = np.eye(3)[rng.integers(0, 3, (Q, N, N))]
    theirs = peer("lm_polygraph.estimators.kernel_language_entropy").KernelLanguageEntropy()(
        {"semantic_matrix_entail": likeliest[..., 0], "semantic_matrix_contra": likeliest[..., 1]}
    )
    assert kernel_language_entropy(likeliest[..., 0], likeliest[..., 1]) == close(np.array(theirs), abs=1e-8)


def test_cov_eigenscore(peer: Any, rng: np.random.Generator) -> None:
    hidden = rng.normal(size=(Q, N, 32))
    theirs = peer("lm_polygraph.estimators.eigenscore").EigenScore(alpha=1e-3)({"sample_embeddings": hidden})
    # Theirs is the mean logarithm of the N eigenvalues, ours the sum.
    assert cov_eigenscore(hidden, 1e-3) / N == close(theirs, abs=1e-8)


def test_predictive_entropy(peer: Any, rng: np.random.Generator) -> None:
    tokens = [[list(-rng.exponential(1, rng.integers(1, 9))) for _ in range(N)] for _ in range(Q)]
    sums = [[sum(answer) for answer in row] for row in tokens]
    module = peer("lm_polygraph.estimators.monte_carlo_normalized_sequence_entropy")
    # The divisor is the number of tokens, as in the paper; theirs counts none for the end of the sequence.
    theirs = module.MonteCarloNormalizedSequenceEntropy()({"sample_log_probs": sums, "sample_tokens": tokens})
    assert [predictive_entropy(row) for row in tokens] == close(theirs.tolist(), abs=1e-8)


def test_discrete_semantic_entropy(peer: Any, clusters: np.ndarray) -> None:
    estimator = peer("lm_polygraph.estimators.semantic_entropy").SemanticEntropy(
        class_probability_estimation="frequency"
    )
    texts = [[str(k) for k in row] for row in clusters]
    theirs = estimator({"sample_texts": texts, "semantic_classes_entail": classes(clusters)})
    assert discrete_semantic_entropy(clusters) == close(theirs, abs=1e-8)


@pytest.mark.parametrize("n_tokens", [None, 3])
def test_semantic_entropy(
    peer: Any, clusters: np.ndarray, log_likelihoods: np.ndarray, n_tokens: int | None
) -> None:
    utils = peer("uqlm.nli.entropy_utils")
    theirs = []
    for logs, row in zip(log_likelihoods, classes(clusters)["class_to_sample"], strict=True):
        tokens = [[{"logprob": value / (n_tokens or 1)}] * (n_tokens or 1) for value in logs]
        each = [utils.length_norm_sequence_prob(answer, n_tokens is not None) for answer in tokens]
        theirs.append(utils.compute_semantic_entropy(utils.compute_cluster_probabilities(each, row)))
    counts = None if n_tokens is None else np.full((Q, N), n_tokens)
    assert semantic_entropy(log_likelihoods, clusters, counts) == close(np.array(theirs), abs=1e-8)


def test_auarc_without_ties(peer: Any, rng: np.random.Generator) -> None:
    confidence, label = rng.normal(size=500), rng.integers(0, 2, 500)
    theirs = peer("lm_polygraph.ue_metrics.pred_rej_area").PredictionRejectionArea()(-confidence, label)
    assert auarc(confidence, label) == close(theirs, abs=1e-8)


@pytest.mark.parametrize("bins", [10, 15, 20])
def test_ece(peer: Any, rng: np.random.Generator, bins: int) -> None:
    probability, label = rng.random(500), rng.integers(0, 2, 500)
    theirs = peer("lm_polygraph.ue_metrics.ece").ECE(n_bins=bins)(-probability, label)
    assert ece(probability, label, bins=bins) == close(theirs, abs=1e-8)


def test_auroc_with_ties(peer: Any, rng: np.random.Generator) -> None:
    confidence, label = rng.integers(0, 9, 500).astype(float), rng.integers(0, 2, 500)
    theirs = peer("lm_polygraph.ue_metrics.roc_auc").ROCAUC()(confidence, label)
    assert auroc(confidence, label) == close(theirs, abs=1e-8)
