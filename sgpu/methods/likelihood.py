"""What the log-probabilities of tokens say: likelihoods of answers, log-perplexity, predictive entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgpu.methods.base import Floats, Ints, Method, of_each

# What the engines store (`sgpu.engines.base.Answer`), said by every method that reads it. A truncated
# distribution (top-k, top-p) would make the sampled tokens look surer than the model was.
LOG_PROBS = "raw: before temperature, top-k and top-p; given response files as they came"


def answer_log_likelihoods(
    token_logprobs: Sequence[Sequence[Sequence[float]]], n: int
) -> tuple[Floats, Ints]:
    """Joint log-likelihoods (nats) and token counts, both (Q, N), of Q x N x T ragged tokens.

    An answer without tokens has NaN and 0: the empty sum would call it certain. A token of probability 0
    gives ``-inf``, an unknown (NaN) one NaN.
    """
    log_likelihoods = np.full((len(token_logprobs), n), np.nan)
    n_tokens = np.zeros((len(token_logprobs), n), dtype=np.int64)
    for q, answers in enumerate(token_logprobs):
        for i, tokens in enumerate(answers):
            if tokens:
                log_likelihoods[q, i], n_tokens[q, i] = math.fsum(tokens), len(tokens)
    return log_likelihoods, n_tokens


def log_perplexity(token_logprobs: Sequence[float]) -> float:
    """Minus the mean log-probability (nats) of the T tokens of one answer; higher = less certain.

    NaN for an answer without tokens. A token of probability 0 (``-inf``) gives ``inf``, a NaN gives NaN.
    The studies' log-probabilities are those before temperature, top-k and top-p.

    Source: the paper, Preliminaries, log PPL(y|x).
    """
    if not token_logprobs:
        return float("nan")
    return -sum(token_logprobs) / len(token_logprobs)


def _first_answer(answers: Sequence[Sequence[float]]) -> float:
    # The paper does not say which answer. Studies sample and have no greedy answer, so it is the first
    # sample: the answer that a user who asked once would have seen. If it is empty the row is missing,
    # because the perplexity of another answer would describe another answer.
    return log_perplexity(answers[0]) if answers else float("nan")


LOG_PERPLEXITY = Method(
    name="log_perplexity",
    title="Log-perplexity",
    needs=frozenset({"token_logprobs"}),
    sign="uncertainty",
    compute=of_each("token_logprobs", _first_answer),
    reference="SGPU paper, Preliminaries",
    settings={"answer": "first sample", "log_probs": LOG_PROBS},
)


def predictive_entropy(token_logprobs: Sequence[Sequence[float]]) -> float:
    """Mean log-perplexity (nats) of the N answers of one response set; higher = less certain.

    ``token_logprobs`` is N x T, ragged. Answers without tokens are left out; NaN if none remain. One
    answer with a token of probability 0 (``-inf``) makes the entropy ``inf``, a NaN makes it NaN.
    The studies' log-probabilities are those before temperature, top-k and top-p.

    Source: the paper, H = (1/N) sum_i log PPL(y_i): each answer is normalised by its own length.
    """
    surprises = [log_perplexity(tokens) for tokens in token_logprobs if len(tokens)]
    return sum(surprises) / len(surprises) if surprises else float("nan")


PREDICTIVE_ENTROPY = Method(
    name="predictive_entropy",
    title="Predictive entropy",
    needs=frozenset({"token_logprobs"}),
    sign="uncertainty",
    compute=of_each("token_logprobs", predictive_entropy),
    reference="SGPU paper, Preliminaries; Kuhn et al. 2023",
    settings={"length_normalised": True, "log_probs": LOG_PROBS},
)
