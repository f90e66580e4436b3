"""Cov Eigenscore: the volume that the hidden states of the answers span, centred over the features."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError, UsageError
from sgpu.methods.base import Floats, Method, of_each
from sgpu.methods.semantic_volume import mask_nonfinite_sets, semantic_volume
from sgpu.registry import unknown_name

# Sigma is Z J Z^T ("scatter": the paper, lm-polygraph) or Z J Z^T / (D - 1) ("covariance": INSIDE). Under
# one alpha the two rank differently: alpha weighs D - 1 times as much in the second.
Scaling = Literal["scatter", "covariance"]


def cov_eigenscore(hidden: ArrayLike, alpha: float = 1e-3, scaling: Scaling = "scatter") -> Floats:
    """ln det(Sigma + alpha I) in nats, higher = less certain: (..., N, D) -> (...).

    Sigma (N, N) is the covariance of the answers over the D features, so each state is centred on its own
    mean and equal states do not cancel. INSIDE's published number is this with "covariance", divided by
    N ln 10. A set with a value that is not finite gives NaN. Raises UsageError for a setting that does not
    exist, DataError for states that have no covariance.

    Source: the paper, eq. semantic_volume; Chen et al. 2024 (INSIDE).
    """
    if scaling not in get_args(Scaling):
        raise UsageError(unknown_name("scaling", scaling, list(get_args(Scaling))))
    states = mask_nonfinite_sets(hidden)
    centred = states - states.mean(axis=-1, keepdims=True)
    if scaling == "covariance":
        features = states.shape[-1]
        if features < 2:
            raise DataError("hidden states of 1 feature have no covariance; at least 2 are needed")
        centred /= np.sqrt(features - 1)
    return semantic_volume(centred, alpha)


def configure_cov_eigenscore(*, alpha: float = 1e-3, scaling: Scaling = "scatter") -> Method:
    """Return the method with the paper's scaling, or with INSIDE's."""
    return Method(
        name="cov_eigenscore",
        title="Cov Eigenscore",
        needs=frozenset({"middle_hidden"}),
        sign="uncertainty",
        compute=of_each("middle_hidden", partial(cov_eigenscore, alpha=alpha, scaling=scaling)),
        reference="SGPU paper, semantic volume; Chen et al. 2024 (INSIDE)",
        settings={"alpha": alpha, "scaling": scaling, "layer": "middle", "token": "last"},
    )


METHOD = configure_cov_eigenscore()
