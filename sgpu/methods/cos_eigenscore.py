"""Cos Eigenscore: the volume that the directions of the hidden states span."""

from __future__ import annotations

from functools import partial

from numpy.typing import ArrayLike

from sgpu.methods.base import Floats, Method, of_each
from sgpu.methods.semantic_volume import mask_nonfinite_sets, semantic_volume, unit_vectors


def cos_eigenscore(hidden: ArrayLike, alpha: float = 1e-3) -> Floats:
    """ln det(S + alpha I) in nats, S the cosines between states; higher = less certain: (..., N, D) -> (...).

    In [(N-1) ln alpha + ln(N + alpha), N ln(1 + alpha)]: from one direction to all orthogonal. A set with
    a value that is not finite, or with a state of zeros, gives NaN. Raises UsageError unless alpha > 0,
    DataError for another shape.

    Source: the paper, cosine variant of the semantic volume; alpha is stated nowhere and taken from INSIDE.
    """
    return semantic_volume(unit_vectors(mask_nonfinite_sets(hidden)), alpha)


def configure_cos_eigenscore(*, alpha: float = 1e-3) -> Method:
    """Return the method with the alpha of INSIDE, or another."""
    return Method(
        name="cos_eigenscore",
        title="Cos Eigenscore",
        needs=frozenset({"middle_hidden"}),
        sign="uncertainty",
        compute=of_each("middle_hidden", partial(cos_eigenscore, alpha=alpha)),
        reference="SGPU paper, semantic volume; Li et al. 2025",
        settings={"alpha": alpha, "layer": "middle", "token": "last"},
    )


METHOD = configure_cos_eigenscore()
