"""Semantic entropy probe: logistic regression that reads off one answer whether N answers would disagree."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from sgpu.errors import TrainingError, UsageError
from sgpu.probes.base import Probe, ProbeMethod, ProbeReport, Weights
from sgpu.probes.states import Floats, Position, ProbeRows, Singles, best_layers, validation_auroc
from sgpu.registry import unknown_name

SPLIT_CANDIDATES = 100


@dataclass(frozen=True, kw_only=True)
class SepReport(ProbeReport):
    """What a fit did. ``validation_auroc`` is of one probe a layer, for high entropy."""

    split: float  # nats; entropies above it are high
    split_from: str  # "validation" or "training"
    first_layer: int
    stop_layer: int  # the first one not read
    converged: bool


@dataclass
class Sep(Probe[SepReport]):
    """Logistic regression of high against low discrete semantic entropy on several layers side by side.

    It needs the entropies (nats) of sample sets for training, and one answer's states for prediction; no
    labels. Where the validation rows cannot choose the split and the layers, the split comes from the
    training rows and the layers are the middle ones; if all entropies are the same, that is a TrainingError.
    ``position`` says which token the states are of (see `sgpu.probes.states`) and is kept with the fit.
    ``at_least`` consecutive layers are read. ``inverse_penalty`` and ``max_iter`` are scikit-learn's C and
    max_iter, with its defaults as in the authors' code. Nothing is random, so there is no seed.

    Source: Kossen et al. 2024 and the authors' notebook, which chooses on test rows what is chosen on
    validation rows here.
    """

    name, described, report_type = "sep", "an SEP", SepReport

    position: Position = "slt"
    at_least: int = 5
    inverse_penalty: float = 1.0
    max_iter: int = 100

    def __post_init__(self) -> None:
        if self.position not in get_args(Position):
            raise UsageError(unknown_name("position", self.position, list(get_args(Position))))
        if self.at_least < 1 or not self.inverse_penalty > 0 or self.max_iter < 1:
            raise UsageError(
                f"at_least is {self.at_least}, inverse_penalty {self.inverse_penalty}, max_iter "
                f"{self.max_iter}; at least 1, above 0 and at least 1 are needed"
            )
        super().__init__(self)

    @property
    def layers(self) -> range:
        return range(self.report.first_layer, self.report.stop_layer)

    def learnt(self, training: ProbeRows, validation: ProbeRows) -> tuple[SepReport, Weights]:
        """The regression on the layers that are best on the validation rows, one layer each."""
        split, split_from = _split_of(training.target, validation.target)
        high, validation_high = training.target > split, (validation.target > split).astype(np.float64)
        aurocs = []
        for layer in range(training.shape[0]):
            line, _ = self._regress(training.layers(layer, layer + 1), high)
            score = _log_odds_of_high(line, validation.layers(layer, layer + 1))
            aurocs.append(validation_auroc(score, validation_high))
        first, stop = best_layers(aurocs, self.at_least)
        line, converged = self._regress(training.layers(first, stop), high)
        own = {"split": split, "split_from": split_from, "first_layer": first, "stop_layer": stop}
        return SepReport.of(training, validation, aurocs, converged=converged, **own), line

    def log_odds(self, features: Singles) -> Floats:
        """(M,) log-odds of LOW entropy: those of the published score, negated."""
        return -_log_odds_of_high(self._weights, features)

    def _regress(self, features: Singles, high: Any) -> tuple[Weights, bool]:
        """The line, and whether it converged."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=self.inverse_penalty, max_iter=self.max_iter)
        with warnings.catch_warnings():
            # The report says it; stopping early is what the authors' probes do too.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, high)
        converged = bool(model.n_iter_[0] < self.max_iter)
        line = {"slopes": model.coef_[0].astype(np.float64), "offset": model.intercept_.astype(np.float64)}
        return line, converged


METHOD = ProbeMethod(
    name="sep",
    title="SEP",
    needs=frozenset({"layer_hidden", "clusters"}),
    reference="Kossen et al. 2024",
    gives="probability of low semantic entropy",
    learns="discrete semantic entropies, without labels",
    probe=Sep,
    target="discrete_semantic_entropy",
    position_setting="sep_position",
    seconds=3e-7,
)


def _log_odds_of_high(line: Weights, features: Singles) -> Floats:
    log_odds: Floats = features.astype(np.float64) @ line["slopes"] + line["offset"]
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
