"""How the eigenvalues are shown to the classifier, which takes non-negative rows in descending order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Floats
from sgpu.registry import unknown_name

# Of the share x / N of an eigenvalue: what is below is rounding of the encoder.
FLOOR = 1e-3
# A column that hardly varies in training must not become the largest distance elsewhere.
SMALLEST_SCALE = 1e-2


@dataclass(frozen=True)
class Representation:
    """A map of spectra (Q, N) that is fixed by the rows that it was fitted to."""

    name: str
    scale: Floats  # (N,) what each column is divided by
    offset: Floats  # (N,) what is added then

    def __call__(self, spectra: Floats) -> Floats:
        x = np.sort(np.maximum(spectra, 0.0), axis=1)[:, ::-1]
        if self.name == "log":
            x = np.log1p(x / (x.shape[1] * FLOOR))
        return np.ascontiguousarray(x / self.scale + self.offset)


def fit_representation(name: str, spectra: Floats) -> Representation:
    """``raw`` and ``log`` (of the share of N) as they are, ``scaled``: each column by its deviation here.

    Raises UsageError for another name.
    """
    n = spectra.shape[1]
    if name not in ("raw", "log", "scaled"):
        raise UsageError(unknown_name("representation", name, ["log", "raw", "scaled"]))
    if name != "scaled":
        return Representation(name, np.ones(n), np.zeros(n))
    scale = np.maximum(np.sort(np.maximum(spectra, 0.0), axis=1)[:, ::-1].std(axis=0), SMALLEST_SCALE)
    # The kernel sees differences only, so offsets change nothing but the order of a row, which would not be
    # descending any more: the largest value of a column, n / scale, may not pass the column before it.
    most = n / scale
    offset = np.concatenate([np.cumsum(most[::-1])[::-1][1:], [0.0]])
    return Representation(name, scale, offset)
