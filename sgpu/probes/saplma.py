"""SAPLMA: a small network that reads off one hidden state whether the answer is right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sgpu.errors import DataError, IntegrityError, TrainingError, UsageError
from sgpu.probes.network import Network, Training, logits, train
from sgpu.probes.persistence import read_probe, tuples, write_probe
from sgpu.probes.selection import best_layers, validation_auroc
from sgpu.probes.states import Floats, Rows, flat_layers, known_rows, layer_states

NAME = "saplma"


@dataclass(frozen=True)
class SaplmaReport:
    """What a fit did. ``layer`` counts along the L axis; ``validation_auroc`` is None where undefined."""

    layer: int
    validation_auroc: tuple[float | None, ...]  # (L,)
    rows: int
    rows_left_out: int  # without state or label
    validation_rows: int
    shape: tuple[int, int]  # (L, D)


class Saplma:
    """Network 256-128-64 on the state of one token, one layer of L, chosen by validation AUROC.

    ``standardise`` scales each feature by its training mean and deviation first; the authors do not. Equal
    arguments and rows give equal fits on one machine; no global generator is used. Raises UsageError for
    settings that cannot be.

    Source: Azaria and Mitchell 2023 and the authors' code: Adam, binary cross-entropy, 5 epochs of 32 rows.
    """

    def __init__(
        self,
        epochs: int = 5,
        batch: int = 32,
        learning_rate: float = 1e-3,
        standardise: bool = False,
        seed: int = 0,
    ) -> None:
        if epochs < 1 or batch < 1 or not learning_rate > 0:
            raise UsageError(
                f"epochs is {epochs}, batch {batch}, learning_rate {learning_rate}; "
                "at least 1, at least 1 and above 0 are needed"
            )
        self.settings = Training(epochs, batch, learning_rate, standardise, seed)
        self._report: SaplmaReport | None = None
        self._weights: Network = {}

    @property
    def report(self) -> SaplmaReport:
        """What the last fit did; TrainingError before the first."""
        if self._report is None:
            raise TrainingError("this probe is not fitted; call fit(...) or Saplma.load(folder)")
        return self._report

    def fit(
        self,
        hidden: ArrayLike,
        labels: ArrayLike,
        validation_hidden: ArrayLike,
        validation_labels: ArrayLike,
    ) -> Saplma:
        """Fit to states (M, L, D) and labels (M,), 1 right, 0 wrong; return self.

        Validation rows choose the layer and are not trained on; where they have one class only, the middle
        layer is taken. Rows with NaN are left out and counted. Raises DataError for arrays that do not fit,
        TrainingError where the training rows have one class only or training diverges.
        """
        training = Rows.of(hidden, labels)
        validation = Rows.of(validation_hidden, validation_labels, training.shape)
        _check_labels(training.target, validation.target)
        layers = training.shape[0]
        networks = [
            train(training.layers(layer, layer + 1), training.target, self.settings)
            for layer in range(layers)
        ]
        aurocs = tuple(
            validation_auroc(logits(network, validation.layers(layer, layer + 1)), validation.target)
            for layer, network in enumerate(networks)
        )
        layer, _ = best_layers(aurocs, at_least=1)
        self._weights = networks[layer]
        self._report = SaplmaReport(
            layer,
            aurocs,
            len(training.target),
            training.left_out,
            len(validation.target),
            training.shape,
        )
        return self

    def predict_proba(self, hidden: ArrayLike) -> Floats:
        """(Q,) probability that the answer is right, of states (Q, L, D); NaN for a row with NaN.

        Raises DataError for another L or D than in training, TrainingError before a fit.
        """
        report = self.report
        states = layer_states(hidden, report.shape)
        known = known_rows(states)
        probability = np.full(len(states), np.nan)
        values = flat_layers(states, known, report.layer, report.layer + 1)
        probability[known] = expit(logits(self._weights, values))
        return probability

    def save(self, folder: Path | str) -> None:
        """Write `saplma.safetensors` and `saplma.json`; equal fits write equal bytes."""
        description = {"settings": asdict(self.settings), "report": asdict(self.report)}
        write_probe(folder, NAME, description, self._weights)

    @classmethod
    def load(cls, folder: Path | str) -> Saplma:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        description, weights = read_probe(folder, NAME)
        try:
            probe = cls(**description["settings"])
            probe._report = SaplmaReport(**tuples(description["report"]))
        except (KeyError, TypeError) as error:
            raise IntegrityError(f"{folder} does not describe a SAPLMA probe: {error}. Fit again.") from error
        probe._weights = weights
        return probe


def _check_labels(training: Floats, validation: Floats) -> None:
    for what, labels in (("training", training), ("validation", validation)):
        if (bad := labels[~np.isin(labels, (0.0, 1.0))]).size:
            raise DataError(f"a {what} label is {bad[0]}; labels are 0 or 1, or NaN where there is none")
    if len(np.unique(training)) < 2:
        raise TrainingError(
            f"all {len(training)} training labels are the same; a probe needs both classes. "
            "Use other questions or check the judge."
        )
