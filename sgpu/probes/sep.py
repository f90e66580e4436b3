"""Semantic entropy probe: logistic regression that reads off one answer whether N answers would disagree."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sgpu.errors import IntegrityError, TrainingError, UsageError
from sgpu.probes.persistence import read_probe, tuples, write_probe
from sgpu.probes.positions import Position
from sgpu.probes.selection import best_layers, validation_auroc
from sgpu.probes.states import Floats, Rows, Singles, flat_layers, known_rows, layer_states
from sgpu.registry import unknown_name

NAME = "sep"
SPLIT_CANDIDATES = 100


@dataclass(frozen=True)
class SepSettings:
    """The arguments of a probe."""

    position: Position
    at_least: int
    inverse_penalty: float
    max_iter: int


@dataclass(frozen=True)
class SepReport:
    """What a fit did. Layers count along the L axis; ``validation_auroc`` is None where undefined."""

    split: float  # nats; entropies above it are high
    split_from: str  # "validation" or "training"
    first_layer: int
    stop_layer: int  # the first one not read
    validation_auroc: tuple[float | None, ...]  # (L,), of one probe a layer, for high entropy
    converged: bool
    rows: int
    rows_left_out: int  # without state or entropy
    validation_rows: int
    shape: tuple[int, int]  # (L, D)


class Sep:
    """Logistic regression of high against low discrete semantic entropy on several layers side by side.

    It needs the entropies of sample sets for training, and one answer's states for prediction; no labels.
    ``position`` says which token the states are of (see `sgpu.probes.positions`) and is kept with the fit.
    ``at_least`` consecutive layers are read. ``inverse_penalty`` and ``max_iter`` are scikit-learn's C and
    max_iter, with its defaults as in the authors' code. Nothing is random, so there is no seed.

    Source: Kossen et al. 2024 and the authors' notebook, which chooses on test rows what is chosen on
    validation rows here.
    """

    def __init__(
        self,
        position: Position = "slt",
        at_least: int = 5,
        inverse_penalty: float = 1.0,
        max_iter: int = 100,
    ) -> None:
        if position not in get_args(Position):
            raise UsageError(unknown_name("position", position, list(get_args(Position))))
        if at_least < 1 or not inverse_penalty > 0 or max_iter < 1:
            raise UsageError(
                f"at_least is {at_least}, inverse_penalty {inverse_penalty}, max_iter {max_iter}; "
                "at least 1, above 0 and at least 1 are needed"
            )
        self.settings = SepSettings(position, at_least, inverse_penalty, max_iter)
        self._report: SepReport | None = None
        self._line = _Line(np.empty(0), 0.0, False)

    @property
    def report(self) -> SepReport:
        """What the last fit did; TrainingError before the first."""
        if self._report is None:
            raise TrainingError("this probe is not fitted; call fit(...) or Sep.load(folder)")
        return self._report

    def fit(
        self,
        hidden: ArrayLike,
        entropies: ArrayLike,
        validation_hidden: ArrayLike,
        validation_entropies: ArrayLike,
    ) -> Sep:
        """Fit to states (M, L, D) and discrete semantic entropies (M,) in nats; return self.

        Validation rows choose the split and the layers and are not trained on. Where they cannot, the split
        comes from the training rows and the layers are the middle ones. Rows with NaN are left out and
        counted. Raises DataError for arrays that do not fit, TrainingError if all entropies are the same.
        """
        training = Rows.of(hidden, entropies)
        validation = Rows.of(validation_hidden, validation_entropies, training.shape)
        split, split_from = _split_of(training.target, validation.target)
        high, validation_high = training.target > split, (validation.target > split).astype(np.float64)
        aurocs = []
        for layer in range(training.shape[0]):
            line = self._regress(training.layers(layer, layer + 1), high)
            aurocs.append(validation_auroc(line(validation.layers(layer, layer + 1)), validation_high))
        first, stop = best_layers(aurocs, self.settings.at_least)
        self._line = self._regress(training.layers(first, stop), high)
        self._report = SepReport(
            split,
            split_from,
            first,
            stop,
            tuple(aurocs),
            self._line.converged,
            len(training.target),
            training.left_out,
            len(validation.target),
            training.shape,
        )
        return self

    def predict_proba(self, hidden: ArrayLike) -> Floats:
        """(Q,) probability of LOW entropy, higher = more trustworthy, of states (Q, L, D).

        One minus the published score. NaN for a row with NaN. Raises DataError for another L or D than in
        training, TrainingError before a fit.
        """
        report = self.report
        states = layer_states(hidden, report.shape)
        known = known_rows(states)
        probability = np.full(len(states), np.nan)
        probability[known] = expit(
            -self._line(flat_layers(states, known, report.first_layer, report.stop_layer))
        )
        return probability

    def save(self, folder: Path | str) -> None:
        """Write `sep.safetensors` and `sep.json`; equal fits write equal bytes."""
        description = {"settings": asdict(self.settings), "report": asdict(self.report)}
        weights = {"slopes": self._line.slopes, "offset": np.array([self._line.offset])}
        write_probe(folder, NAME, description, weights)

    @classmethod
    def load(cls, folder: Path | str) -> Sep:
        """Read what `save` wrote. Raises IntegrityError for a changed, broken or foreign folder."""
        description, weights = read_probe(folder, NAME)
        try:
            probe = cls(**description["settings"])
            report = SepReport(**tuples(description["report"]))
            probe._line = _Line(weights["slopes"], float(weights["offset"][0]), report.converged)
        except (KeyError, TypeError) as error:
            raise IntegrityError(f"{folder} does not describe an SEP: {error}. Fit again.") from error
        probe._report = report
        return probe

    def _regress(self, features: Singles, high: Any) -> _Line:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=self.settings.inverse_penalty, max_iter=self.settings.max_iter)
        with warnings.catch_warnings():
            # The report says it; stopping early is what the authors' probes do too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, high)
        converged = bool(model.n_iter_[0] < self.settings.max_iter)
        return _Line(model.coef_[0].astype(np.float64), float(model.intercept_[0]), converged)


@dataclass(frozen=True)
class _Line:
    """The fitted log-odds of high entropy."""

    slopes: Floats
    offset: float
    converged: bool

    def __call__(self, features: Singles) -> Floats:
        log_odds: Floats = features.astype(np.float64) @ self.slopes + self.offset
        return log_odds


def best_split(entropies: Floats) -> float | None:
    """The threshold that leaves the least squared deviation within the two groups of (n,) entropies.

    One of 100 values from 1e-10 to the largest entropy, the lowest of equals; an entropy equal to it is low.
    None where no threshold makes two groups.

    Source: Kossen et al. 2024, section 4, with the grid of the authors' notebook.
    """
    best: tuple[float, float] | None = None
    for candidate in np.linspace(1e-10, np.max(entropies, initial=1e-10), SPLIT_CANDIDATES):
        groups = entropies[entropies > candidate], entropies[entropies <= candidate]
        if all(len(group) for group in groups):
            deviation = sum(float(group.var()) * len(group) for group in groups)
            if best is None or deviation < best[0]:
                best = deviation, float(candidate)
    return best[1] if best else None


def _split_of(training: Floats, validation: Floats) -> tuple[float, str]:
    """The split of the validation rows, unless it leaves the training rows in one group."""
    for split_from, entropies in (("validation", validation), ("training", training)):
        split = best_split(entropies)
        if split is not None and len(np.unique(training > split)) == 2:
            return split, split_from
    raise TrainingError(
        f"no split makes two groups of the {len(training)} training entropies; a probe needs response sets "
        "of low and of high entropy. Use other questions or more answers a question."
    )
