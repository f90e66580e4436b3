"""Predictive entropy: log-perplexity averaged over the sampled answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgpu.methods.answer_likelihood import LOG_PROBS
from sgpu.methods.base import CellFeatures, Floats, Method
from sgpu.methods.log_perplexity import log_perplexity


def predictive_entropy(token_logprobs: Sequence[Sequence[float]]) -> float:
    """Mean log-perplexity (nats) of the N answers of one response set; higher = less certain.

    ``token_logprobs`` is N x T, ragged. Answers without tokens are left out; NaN if none remain. One
    answer with a token of probability 0 (``-inf``) makes the entropy ``inf``, a NaN makes it NaN.
    The studies' log-probabilities are those before temperature, top-k and top-p.

    Source: the paper, H = (1/N) sum_i log PPL(y_i): each answer is normalised by its own length.
    """
    surprises = [log_perplexity(tokens) for tokens in token_logprobs if len(tokens)]
    return sum(surprises) / len(surprises) if surprises else float("nan")


def _each_question(features: CellFeatures) -> Floats:
    assert features.token_logprobs is not None
    return np.array([predictive_entropy(answers) for answers in features.token_logprobs], dtype=np.float64)


METHOD = Method(
    name="predictive_entropy",
    title="Predictive entropy",
    needs=frozenset({"token_logprobs"}),
    sign="uncertainty",
    compute=_each_question,
    reference="SGPU paper, Preliminaries; Kuhn et al. 2023",
    settings={"length_normalised": True, "log_probs": LOG_PROBS},
)
