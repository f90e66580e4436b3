"""Measures of the forecasts by cell, paired differences, and the registered rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.study_plus.answers import Floats, ScoredAnswers
from bench.study_plus.forecasts import Forecast, ZeroShot
from sgpu.evaluation.bootstrap import (
    bootstrap_p,
    evaluate,
    percentile_interval,
    replicates,
    resampled_rows,
)
from sgpu.evaluation.calibration import log_errors
from sgpu.evaluation.comparison import holm
from sgpu.evaluation.delong import delong
from sgpu.evaluation.metrics import probability_statistic, ranking_statistic
from sgpu.judges.alias import most_named

RESAMPLES, SEED = 2000, 0
METRICS = ("auroc", "log_loss", "ece")
PLUS, PAPER = "sgpu_plus", "sgpu"
PRIMARY = [(label, metric) for label in ("chosen", "other") for metric in ("auroc", "log_loss")]
MOST_LOST, LEAST_PARAPHRASED = -0.06, -0.03
ABOVE_BASE_RATE = 0.02


@dataclass(frozen=True)
class Measured:
    """Values and replicates (2,000) by method and metric for one cell and label.

    A method is measured on the questions of which it says something; all resamples are the same.
    """

    values: Mapping[str, Mapping[str, float]]
    drawn: Mapping[str, Mapping[str, Floats]]
    p_delong: float
    rate: float
    rows: int

    def difference(self, metric: str, method: str = PLUS, reference: str = PAPER) -> tuple[float, Floats]:
        """Return the method minus the reference, and its replicates."""
        value = self.values[method][metric] - self.values[reference][metric]
        return value, self.drawn[method][metric] - self.drawn[reference][metric]


def measure(forecasts: Mapping[str, Forecast], y: Floats) -> Measured | None:
    """Measure all methods on the questions that have a label; None if those are of one class."""
    rows = ~np.isnan(y)
    label = y[rows]
    if len(np.unique(label)) < 2:
        return None
    kept = {name: Forecast(*(part[rows] for part in one)) for name, one in forecasts.items()}
    known = {name: ~np.isnan(one.score) & ~np.isnan(one.probability) for name, one in kept.items()}
    statistics = {
        name: [
            ranking_statistic(one.score, label, known[name]),
            probability_statistic(one.probability, label, known[name]),
        ]
        for name, one in kept.items()
        if len(np.unique(label[known[name]])) == 2
    }
    values = evaluate(statistics, np.ones((len(label), 1)))
    drawn = replicates(statistics, len(label), n_resamples=RESAMPLES, seed=SEED)
    return Measured(
        {name: {metric: float(found[metric][0]) for metric in METRICS} for name, found in values.items()},
        {name: {metric: found[metric] for metric in METRICS} for name, found in drawn.items()},
        delong(kept[PLUS].score, kept[PAPER].score, label).p,
        float(label.mean()),
        len(label),
    )


@dataclass(frozen=True)
class Difference:
    """A mean difference over cells with its interval and p-value."""

    value: float
    lo: float
    hi: float
    p: float


def mean_difference(
    cells: Sequence[Measured], metric: str, method: str = PLUS, reference: str = PAPER
) -> Difference:
    """Return the mean over cells of the method minus the reference; cells are resampled apart."""
    found = [cell.difference(metric, method, reference) for cell in cells]
    replicate = np.mean([drawn for _, drawn in found], axis=0)
    interval = percentile_interval(float(np.mean([value for value, _ in found])), replicate)
    return Difference(interval.value, interval.lo, interval.hi, bootstrap_p(replicate))


def primary_comparisons(within: Mapping[str, Mapping[str, Measured]]) -> dict[tuple[str, str], Difference]:
    """Return the four registered comparisons, p-values corrected by Holm's method."""
    found = {
        (label, metric): mean_difference([*scored(within[label]).values()], metric)
        for label, metric in PRIMARY
    }
    corrected = holm([one.p for one in found.values()])
    return {
        key: Difference(one.value, one.lo, one.hi, float(p))
        for (key, one), p in zip(found.items(), corrected, strict=True)
    }


def scored(cells: Mapping[str, Measured]) -> dict[str, Measured]:
    """Return the cells that means are taken over: not the paraphrased ones."""
    return {name: one for name, one in cells.items() if "paraphrased" not in name}


def apply_rule(within: Mapping[str, Mapping[str, Measured]]) -> list[tuple[str, bool, str]]:
    """Return each registered condition, whether it holds, and the figures."""
    primary = primary_comparisons(within)
    rows = []
    for label in ("chosen", "other"):
        found = primary[label, "auroc"]
        rows.append(
            (f"1. lower end of the mean AUROC difference above 0, {label}", found.lo > 0, _told(found))
        )
    for label in ("chosen", "other"):
        by_cell = {name: _interval(one) for name, one in scored(within[label]).items()}
        worse = [name for name, one in by_cell.items() if one.hi < 0]
        lost = [name for name, one in by_cell.items() if one.value < MOST_LOST]
        told = f"upper end below 0: {', '.join(worse) or 'none'}; "
        told += f"lower by more than 0.06: {', '.join(lost) or 'none'}"
        rows.append((f"2. no cell lower, {label}", not worse and not lost, told))
    for label in ("chosen", "other"):
        copies = [one for name, one in within[label].items() if "paraphrased" in name]
        found = mean_difference(copies, "auroc")
        rows.append((f"3. paraphrased cells, {label}", found.value >= LEAST_PARAPHRASED, _told(found)))
    for label in ("chosen", "other"):
        found = primary[label, "log_loss"]
        rows.append((f"4. mean log loss not higher, {label}", found.value <= 0, _told(found)))
    return rows


def _interval(cell: Measured) -> Any:
    value, drawn = cell.difference("auroc")
    return percentile_interval(value, drawn)


def _told(found: Difference) -> str:
    return f"{found.value:+.3f} [{found.lo:+.3f}, {found.hi:+.3f}]"


def answer_accuracy(cell: ScoredAnswers) -> dict[str, Floats]:
    """Return whether the chosen, the first and the most common answer are right, (Q,) each."""
    votes = cell.of.votes
    common = [texts.index(most_named(texts)[0]) for texts in cell.features.answers]
    return {
        "chosen": cell.label("chosen"),
        "first": cell.label("first"),
        "most common": votes[np.arange(len(votes)), common],
    }


def mean_gain(right: Floats, reference: Floats) -> Difference:
    """Return the mean difference of two accuracies of the same questions."""
    gain = (right - reference)[~np.isnan(right - reference)]
    replicate = np.concatenate(
        [gain[rows].mean(axis=1) for rows in resampled_rows(len(gain), RESAMPLES, SEED)]
    )
    interval = percentile_interval(float(gain.mean()), replicate)
    return Difference(interval.value, interval.lo, interval.hi, bootstrap_p(replicate))


def zero_shot_losses(shot: ZeroShot, y: Floats) -> dict[str, float]:
    """Return mean log losses on a cell that was left out, and that of the training cells' base rate."""
    rows = ~np.isnan(y) & ~np.isnan(shot.probability)
    losses = {
        "base rate": _loss(np.full(rows.sum(), shot.base_rate), y[rows]),
        "no label": _loss(shot.probability[rows], y[rows]),
        "widened": _loss(shot.widened[rows], y[rows]),
    }
    for n, draws in shot.recalibrated.items():
        kept = [~np.isnan(draw) & ~np.isnan(y) for draw in draws]
        parts = [_loss(draw[row], y[row]) for draw, row in zip(draws, kept, strict=True) if row.any()]
        losses[f"{n} labels"] = float(np.mean(parts)) if parts else float("nan")
    return losses


def widened_against_base_rate(shot: ZeroShot, y: Floats) -> Difference:
    """Return the log loss of the widened posterior minus that of the base rate, paired by question."""
    rows = ~np.isnan(y) & ~np.isnan(shot.widened)
    base = log_errors(np.full(rows.sum(), shot.base_rate), y[rows])
    return mean_gain(log_errors(shot.widened[rows], y[rows]), base)


def _loss(p: Floats, y: Floats) -> float:
    return float(log_errors(p, y).mean())
