"""The metrics by name, bound to the rows of one method, ready for many resamples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sgpu.evaluation.calibration import BINNINGS, Binning, log_errors, squared_errors
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.ranking import (
    Ranking,
    Statistic,
    Tally,
    auarc_20_of,
    auarc_of,
    auroc_of,
    ratio,
    selective_accuracy_of,
)

BINS = 15

# Calibration errors by binning and name, with their number of bins. The paper names neither, and the value
# moves with both: `ece` is the one to be compared.
ECE_BINS: Mapping[Binning, Mapping[str, int]] = {
    "width": {"ece": BINS, "ece_10": 10, "ece_20": 20},
    "mass": {"ece_mass": 10, "ece_mass_15": 15, "ece_mass_20": 20},
}
COVERAGES = {f"selective_accuracy_{percent}": percent / 100 for percent in (50, 70, 80, 90)}
# What the settings of a metric's row say of its definition.
DEFINITIONS: Mapping[str, Mapping[str, object]] = {
    **{
        name: {"bins": bins, "binning": binning}
        for binning, names in ECE_BINS.items()
        for name, bins in names.items()
    },
    **{name: {"coverage": coverage} for name, coverage in COVERAGES.items()},
}


def accuracy_of(tally: Tally) -> Floats:
    """(R,) share of right rows: what every confidence is compared with, and AUARC at random."""
    return ratio(tally.right.sum(axis=0), tally.n)


RANKING_METRICS: Mapping[str, Callable[[Tally], Floats]] = {
    "auroc": auroc_of,
    "auarc": auarc_of,
    "auarc_20": auarc_20_of,
    "accuracy": accuracy_of,
    **{name: partial(selective_accuracy_of, coverage=coverage) for name, coverage in COVERAGES.items()},
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
    probability: Floats,
    label: Floats,
    present: Bools | None = None,
    suffix: str = "",
    ece_bins: Mapping[Binning, Mapping[str, int]] = ECE_BINS,
) -> Statistic:
    """The calibration errors ``ece_bins``, brier and log_loss of ``probability`` (n,) where ``present``.

    ``suffix`` is appended to every name: it tells apart what maps of one score give.
    """
    rows = np.ones(len(label), dtype=np.bool_) if present is None else present
    layouts = [
        (names, BINNINGS[binning].of(probability, label, list(names.values()), rows))
        for binning, names in ece_bins.items()
    ]
    terms = np.zeros((3, len(label)))
    terms[0] = rows
    terms[1, rows] = squared_errors(probability[rows], label[rows])
    terms[2, rows] = log_errors(probability[rows], label[rows])

    def evaluate(counts: Floats) -> dict[str, Floats]:
        n, squared, logarithmic = terms @ counts
        values = {
            name: ratio(gaps, n)
            for names, layout in layouts
            for name, gaps in zip(names, layout.gaps(counts), strict=True)
        }
        values |= {"brier": ratio(squared, n), "log_loss": ratio(logarithmic, n)}
        return {name + suffix: value for name, value in values.items()}

    return evaluate


def unsafe_statistic(confidence: Floats, label: Floats, unsafe: Bools, present: Bools) -> Statistic:
    """Share flagged, accuracy of flagged and kept rows, AUROC of kept rows; all arrays (n,).

    An AUROC of kept rows above that of all rows says that the flag finds answers that confidence misplaces.
    Source: the paper, "Detection of Unsafe SGPU Predictions".
    """
    flagged, kept = present & unsafe, present & ~unsafe
    right = np.where(present, label, 0.0)
    sums = np.stack([present, flagged, kept, flagged * right, kept * right]).astype(np.float64)
    ranking = Ranking.of(confidence, label, kept)

    def evaluate(counts: Floats) -> dict[str, Floats]:
        n, n_flagged, n_kept, right_flagged, right_kept = sums @ counts
        return {
            "unsafe_share": ratio(n_flagged, n),
            "accuracy_unsafe": ratio(right_flagged, n_flagged),
            "accuracy_kept": ratio(right_kept, n_kept),
            "auroc_kept": auroc_of(ranking.tally(counts)),
        }

    return evaluate
