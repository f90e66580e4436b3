"""A method, an encoder and a kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders.cards import EncoderCard
from sgpu.methods.base import CellFeatures, Method


def _distinct(features: CellFeatures) -> NDArray[np.float64]:
    return np.array([len({answer for answer in answers if answer}) for answers in features.answers], float)


DISTINCT_ANSWERS = Method(
    name="distinct_answers",
    title="Number of different answers",
    needs=frozenset({"answers"}),
    sign="uncertainty",
    compute=_distinct,
)


class Letters:
    """A text's vector is drawn by the text itself: what is written alike is alike."""

    name, dtype, dim = "letters", "float32", 16
    fingerprint = hashlib.sha256(b"letters 1").hexdigest()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [np.random.default_rng(list(text.encode()) or 0).normal(size=self.dim) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), self.dim)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _load(dtype: str, device: str, fixed_batches: bool) -> Letters:
    return Letters()


LETTERS = EncoderCard(name="letters", hub_id="", dim=Letters.dim, licence="CC0", load=_load)


def ard_rbf(dimensions: int) -> Any:
    import gpytorch

    return gpytorch.kernels.RBFKernel(ard_num_dims=dimensions)
