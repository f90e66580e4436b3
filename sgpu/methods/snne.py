"""Semantic nearest-neighbour entropy: how many close neighbours an answer has, on a log scale."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.special import logsumexp

from sgpu.errors import UsageError
from sgpu.methods.base import Floats, Method, of_all


def snne(similarities: Floats, tau: float = 1.0) -> Floats:
    """Return -mean_i ln sum_j exp(s_ij / tau); higher = less certain.

    ``similarities`` is (..., N, N), ``tau`` a positive temperature; returns (...). NaN where a similarity is
    NaN. Raises UsageError for a ``tau`` that is not positive.

    Source: Nguyen et al. 2025, "Beyond Semantic Entropy", eq. 5, with cosines of sentence embeddings.
    """
    if not tau > 0:
        raise UsageError(f"tau of method 'snne' is {tau}; a temperature is above 0")
    return -np.mean(logsumexp(np.asarray(similarities) / tau, axis=-1), axis=-1)


def configure_snne(*, tau: float = 1.0) -> Method:
    """Return the method at a temperature ``tau``, which is above 0."""
    return Method(
        name="snne",
        title="SNNE",
        needs=frozenset({"similarities"}),
        sign="uncertainty",
        compute=of_all("similarities", partial(snne, tau=tau)),
        reference="Nguyen et al. 2025",
        settings={"similarity": "cosine of sentence embeddings", "tau": tau},
    )


METHOD = configure_snne()
