"""From stored token log-probabilities to the log-likelihood of each whole answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgpu.methods.base import Floats, Ints

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
