"""UMPIRE: the volume of the answers' hidden states plus how improbable the model found the answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError
from sgpu.methods.base import CellFeatures, Floats, Method
from sgpu.methods.likelihood import LOG_PROBS, answer_log_likelihoods
from sgpu.methods.semantic_volume import mask_nonfinite_sets, semantic_volume, unit_vectors

JITTER = 1e-8
UNTUNED_ALPHA = 1.0  # of the authors' demo


def umpire(hidden: ArrayLike, log_likelihoods: ArrayLike, alpha: float) -> Floats:
    """V + alpha Q of N answers, higher = less certain: (..., N, D) and (..., N) -> (...).

    V = ln det(cosines + 1e-8 I) / 2N is their volume, Q = mean(1 - exp L) their mean improbability.
    ``log_likelihoods`` are joint log-probabilities (nats) of whole answers; -inf counts as improbability 1.
    NaN where a state or a likelihood is missing. Raises DataError where the shapes do not fit.

    Source: Lau et al. 2025 and the authors' code.
    """
    volume, improbability = _terms(hidden, log_likelihoods)
    return volume + alpha * improbability


def balancing_alpha(hidden: ArrayLike, log_likelihoods: ArrayLike) -> float | None:
    """The alpha that gives both terms of UMPIRE the same median size: |median V / median Q|.

    Give it validation rows only, (Q, N, D) and (Q, N): it needs no labels, but rows that are evaluated later
    must not choose it. None where it is undefined: no complete row, or a median improbability of 0.
    """
    return _balance(*_terms(hidden, log_likelihoods))


def configure_umpire(*, alpha: float = UNTUNED_ALPHA, alpha_from: str = "default") -> Method:
    """Return the method with this alpha; ``alpha_from`` says where it comes from."""

    def each_question(features: CellFeatures) -> Floats:
        volume, improbability = _terms_of_cell(features)
        return volume + alpha * improbability

    return Method(
        name="umpire",
        title="UMPIRE",
        needs=frozenset({"last_hidden", "token_logprobs"}),
        sign="uncertainty",
        compute=each_question,
        tune=_tuned,
        reference="Lau et al. 2025",
        settings={
            "alpha": alpha,
            "alpha_from": alpha_from,
            "log_probs": LOG_PROBS,
            "layer": "last",
            "token": "last",
        },
    )


def _tuned(validation: CellFeatures) -> Method:
    """The method with the alpha of a cell's validation rows; the default where they determine none."""
    alpha = _balance(*_terms_of_cell(validation))
    return configure_umpire() if alpha is None else configure_umpire(alpha=alpha, alpha_from="validation")


def _terms(hidden: ArrayLike, log_likelihoods: ArrayLike) -> tuple[Floats, Floats]:
    states = mask_nonfinite_sets(hidden)
    likelihoods = np.asarray(log_likelihoods, dtype=np.float64)
    if likelihoods.shape != states.shape[:-1]:
        raise DataError(
            f"log-likelihoods have shape {likelihoods.shape}, hidden states {states.shape}; "
            f"one number an answer is needed, {states.shape[:-1]}"
        )
    volume = semantic_volume(unit_vectors(states), JITTER) / (2 * states.shape[-2])
    return volume, -np.expm1(likelihoods).mean(axis=-1)


def _terms_of_cell(features: CellFeatures) -> tuple[Floats, Floats]:
    assert features.last_hidden is not None and features.token_logprobs is not None
    log_likelihoods, _ = answer_log_likelihoods(features.token_logprobs, features.last_hidden.shape[1])
    # One question at a time: the float64 copies of a whole cell would not fit beside the cell.
    terms = [_terms(*question) for question in zip(features.last_hidden, log_likelihoods, strict=True)]
    volume, improbability = np.array(terms, dtype=np.float64).reshape(-1, 2).T
    return volume, improbability


def _balance(volume: Floats, improbability: Floats) -> float | None:
    complete = ~np.isnan(volume + improbability)
    if not complete.any() or (median := float(np.median(improbability[complete]))) == 0:
        return None
    return abs(float(np.median(volume[complete])) / median)


METHOD = configure_umpire()
