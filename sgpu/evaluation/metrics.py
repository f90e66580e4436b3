"""The metrics by name, bound to the rows of one method, ready for many resamples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sgpu.evaluation.auarc import auarc_20_of, auarc_of, selective_accuracy_of
from sgpu.evaluation.auroc import auroc_of
from sgpu.evaluation.calibration import CalibrationBins, ece_of, log_errors, squared_errors
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.ranking import Ranking, Statistic, Tally, ratio

BINS = 15
MASS_BINS = 10


def accuracy_of(tally: Tally) -> Floats:
    """(R,) share of right rows: what every confidence is compared with, and AUARC at random."""
    return ratio(tally.right.sum(axis=0), tally.n)


RANKING_METRICS: Mapping[str, Callable[[Tally], Floats]] = {
    "auroc": auroc_of,
    "auarc": auarc_of,
    "auarc_20": auarc_20_of,
    "accuracy": accuracy_of,
    "selective_accuracy_80": partial(selective_accuracy_of, coverage=0.8),
}


def ranking_statistic(
    confidence: Floats,
    label: Floats,
    present: Bools | None = None,
    metrics: Mapping[str, Callable[[Tally], Floats]] = RANKING_METRICS,
) -> Statistic:
    """The metrics of the order of ``confidence`` (n,) over the rows that are ``present``."""
    ranking = Ranking.of(confidence, label, present)

    def evaluate(counts: Floats) -> dict[str, Floats]:
        tally = ranking.tally(counts)
        return {name: metric(tally) for name, metric in metrics.items()}

    return evaluate


def probability_statistic(
    probability: Floats, label: Floats, present: Bools | None = None, suffix: str = ""
) -> Statistic:
    """ece (15 equal-width bins), ece_mass (10 equal-mass), brier and log_loss of ``probability`` (n,)."""
    here = np.ones(len(label), dtype=np.bool_) if present is None else present
    width = CalibrationBins.of(probability, label, BINS, "width", here)
    mass = CalibrationBins.of(probability, label, MASS_BINS, "mass", here)
    terms = np.zeros((3, len(label)))
    terms[0] = here
    terms[1, here] = squared_errors(probability[here], label[here])
    terms[2, here] = log_errors(probability[here], label[here])

    def evaluate(counts: Floats) -> dict[str, Floats]:
        n, squared, logarithmic = terms @ counts
        return {
            f"ece{suffix}": ece_of(width, counts),
            f"ece_mass{suffix}": ece_of(mass, counts),
            f"brier{suffix}": ratio(squared, n),
            f"log_loss{suffix}": ratio(logarithmic, n),
        }

    return evaluate
