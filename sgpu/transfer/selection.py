"""The choice of kernel, representation and inducing points, on validation questions of the sources.

A representation is how eigenvalues are shown to the classifier, which takes non-negative rows in descending
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from sgpu.errors import UsageError
from sgpu.evaluation.calibration import log_errors
from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier
from sgpu.registry import unknown_name
from sgpu.transfer.rows import TransferRows

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


@dataclass(frozen=True)
class Candidate:
    """One setting of the classifier."""

    kernel: str
    representation: str
    inducing: int

    def __str__(self) -> str:
        return f"{self.kernel}, {self.representation}, {self.inducing} inducing points"


def candidates(
    kernels: Sequence[str], representations: Sequence[str], inducing: Sequence[int]
) -> list[Candidate]:
    """Every combination, in the order given."""
    return [Candidate(*parts) for parts in product(kernels, representations, inducing)]


def carried_over(tried: Sequence[Candidate]) -> list[Candidate]:
    """Those that one source can choose between for another cell: with the representation of the first.

    Which representation carries over shows only where a cell was not trained on. On its own questions a text
    cell preferred the logarithm, with which it ranked an image cell the wrong way round.
    """
    return [candidate for candidate in tried if candidate.representation == tried[0].representation]


def row_losses(classifier: GPClassifier, representation: Representation, selection: TransferRows) -> Floats:
    """(S,) log losses (nats) of the rows that the choice is made on."""
    return log_errors(classifier.predict(representation(selection.spectra)).probability, selection.label)


@dataclass(frozen=True)
class Choice:
    """What a plan is fitted with, and the mean losses on the ``rows`` of the selection that led to it."""

    candidate: Candidate
    losses: Mapping[str, float | None]
    rows: int

    @classmethod
    def of(cls, losses: Mapping[Candidate, Floats]) -> Choice:
        """Return the choice by losses (S,), see `choose`; of no rows the first candidate."""
        means = {str(one): float(rows.mean()) if len(rows) else None for one, rows in losses.items()}
        chosen = choose(losses)
        return cls(chosen, means, len(losses[chosen]))


def choose(losses: Mapping[Candidate, Floats]) -> Candidate:
    """The candidate with the least mean loss, if it beats the first one by more than a standard error.

    ``losses`` are (S,) on the same rows. The standard error is of the paired difference: on few rows the best
    of many settings is mostly the luckiest, and a study names first what it would take without any choice.
    """
    first = next(iter(losses))
    if not len(losses[first]):
        return first
    best = min(losses, key=lambda candidate: float(losses[candidate].mean()))
    gain = losses[first] - losses[best]
    if len(gain) < 2 or gain.mean() <= gain.std(ddof=1) / np.sqrt(len(gain)):
        return first
    return best
