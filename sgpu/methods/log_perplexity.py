"""Log-perplexity of one answer: how surprised the model was by what it said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgpu.methods.answer_likelihood import LOG_PROBS
from sgpu.methods.base import CellFeatures, Floats, Method


def log_perplexity(token_logprobs: Sequence[float]) -> float:
    """Minus the mean log-probability (nats) of the T tokens of one answer; higher = less certain.

    NaN for an answer without tokens. A token of probability 0 (``-inf``) gives ``inf``, a NaN gives NaN.
    The studies' log-probabilities are those before temperature, top-k and top-p.

    Source: the paper, Preliminaries, log PPL(y|x).
    """
    if not token_logprobs:
        return float("nan")
    return -sum(token_logprobs) / len(token_logprobs)


def _first_answers(features: CellFeatures) -> Floats:
    # The paper does not say which answer. Studies sample and have no greedy answer, so it is the first
    # sample: the answer that a user who asked once would have seen. If it is empty the row is missing,
    # because the perplexity of another answer would describe another answer.
    assert features.token_logprobs is not None
    return np.array(
        [log_perplexity(answers[0]) if answers else np.nan for answers in features.token_logprobs],
        dtype=np.float64,
    )


METHOD = Method(
    name="log_perplexity",
    title="Log-perplexity",
    needs=frozenset({"token_logprobs"}),
    sign="uncertainty",
    compute=_first_answers,
    reference="SGPU paper, Preliminaries",
    settings={"answer": "first sample", "log_probs": LOG_PROBS},
)
