"""The choice of kernel, representation and inducing points, on validation questions of the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from sgpu.evaluation.calibration import log_errors
from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier
from sgpu.transfer.representation import Representation
from sgpu.transfer.rows import Rows


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


def row_losses(classifier: GPClassifier, representation: Representation, selection: Rows) -> Floats:
    """(S,) log losses (nats) of the rows that the choice is made on."""
    return log_errors(classifier.predict(representation(selection.spectra)).probability, selection.label)


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
