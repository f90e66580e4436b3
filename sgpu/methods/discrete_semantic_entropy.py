"""Discrete semantic entropy: over how many meanings the answers are spread, by counting."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgpu.methods.base import Floats, Method, of_all
from sgpu.methods.clustering import RULE


def discrete_semantic_entropy(clusters: ArrayLike) -> Floats:
    """-sum_k (n_k/N) ln(n_k/N) in nats, in [0, ln N]; higher = less certain.

    ``clusters`` is (..., N), equal ids meaning the same; returns (...). Answers with id -1 are missing and
    not counted; NaN if none is left. Sets with equal cluster sizes get equal values to the last bit, so
    that the many ties of this method stay ties.

    Source: the paper's discrete semantic entropy; Farquhar et al. 2024, cluster assignment entropy.
    """
    ids = np.asarray(clusters)
    counted = ids >= 0
    n = counted.sum(axis=-1, keepdims=True)
    same = (ids[..., :, None] == ids[..., None, :]) & counted[..., None, :]
    # A sum of floats depends on its order: sorted, it hangs on the sizes alone. Missing answers add ln 1.
    sizes = np.sort(np.where(counted, same.sum(axis=-1), n), axis=-1)
    with np.errstate(invalid="ignore"):  # 0/0 where no answer is left: NaN
        return 0.0 - np.log(sizes / n).sum(axis=-1) / n[..., 0]  # of one cluster 0, where -x would be -0


METHOD = Method(
    name="discrete_semantic_entropy",
    title="Discrete semantic entropy",
    needs=frozenset({"clusters"}),
    sign="uncertainty",
    compute=of_all("clusters", discrete_semantic_entropy),
    reference="SGPU paper, Preliminaries; Farquhar et al. 2024",
    settings={"clusters": RULE},
)
