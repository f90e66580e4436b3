"""Every metric of every method on the test split of one cell, in long form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError
from sgpu.evaluation.bootstrap import Interval, intervals
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_probabilities
from sgpu.evaluation.mapping import fit_mapping
from sgpu.evaluation.metrics import BINS, MASS_BINS, probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic
from sgpu.evaluation.unsafe import unsafe_statistic

# Scores that are no probabilities get one by each of these: the first for comparison with the paper, under
# the plain metric names, the second under names that end in the suffix.
SCORE_MAPPINGS = {"minmax": "", "platt": "_platt"}

METRIC_SETTINGS: Mapping[str, Mapping[str, object]] = {
    "ece": {"bins": BINS, "binning": "width"},
    "ece_mass": {"bins": MASS_BINS, "binning": "mass"},
}


@dataclass(frozen=True)
class MetricRow:
    """One row of the metrics table; None where a metric is undefined (one class, no rows)."""

    method: str
    metric: str
    value: float | None
    lo: float | None
    hi: float | None
    n: int
    n_missing: int
    settings: str


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """How intervals are drawn; ``record`` is copied into the settings of every row."""

    n_resamples: int = 2000
    level: float = 0.95
    seed: int = 0
    record: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """Metrics that come from one statistic, and the labelled test rows that it is over."""

    statistic: Statistic
    present: Bools
    settings: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rows:
    """The labels of a cell and the labelled rows of its two splits, (Q,) each."""

    label: Floats
    test: Bools
    validation: Bools


def evaluate_cell(
    confidence: Mapping[str, ArrayLike],
    probability: Mapping[str, ArrayLike | None],
    label: ArrayLike,
    split: ArrayLike,
    *,
    unsafe: Mapping[str, ArrayLike | None] | None = None,
    settings: EvaluationSettings | None = None,
) -> list[MetricRow]:
    """Metric rows of all methods on the rows whose ``split`` is "test"; all arrays are (Q,).

    ``label`` and ``unsafe`` are 1, 0 or NaN/None. Test rows without a label, or without the method's
    confidence, probability or flag (NaN), are left out of the metrics made from it and counted in
    ``n_missing``. Methods without a ``probability`` get one by the `SCORE_MAPPINGS`, fitted on the
    "validation" rows; without such rows their calibration metrics are None with n = 0. All methods are
    resampled alike. Raises DataError for arrays of another length, other labels, probabilities outside
    [0, 1].
    """
    settings = settings or EvaluationSettings()
    labels, splits = np.asarray(label, dtype=np.float64), np.asarray(split, dtype=np.str_)
    known = ~np.isnan(labels)
    checked_labels(labels[known])
    _check_length("split", splits, len(labels))
    rows = _Rows(labels, (splits == "test") & known, (splits == "validation") & known)
    parts = {
        (method, i): part
        for method, scores in confidence.items()
        for i, part in enumerate(
            _parts_of(method, scores, probability.get(method), (unsafe or {}).get(method), rows)
        )
    }
    found = intervals(
        {key: [part.statistic] for key, part in parts.items()},
        int(rows.test.sum()),
        n_resamples=settings.n_resamples,
        level=settings.level,
        seed=settings.seed,
    )
    n_test = int((splits == "test").sum())
    return [
        _row(key[0], metric, interval, parts[key], n_test, settings)
        for key, metrics in found.items()
        for metric, interval in metrics.items()
    ]


def _parts_of(
    method: str, scores: ArrayLike, probability: ArrayLike | None, unsafe: ArrayLike | None, rows: _Rows
) -> list[_Part]:
    confidence = _column(f"confidence of {method!r}", scores, rows)
    label, tested = rows.label[rows.test], confidence[rows.test]
    scored = ~np.isnan(tested)
    parts = [_Part(ranking_statistic(tested, label, scored), scored)]
    if probability is None:
        parts += [_mapped(confidence, rows, *mapping) for mapping in SCORE_MAPPINGS.items()]
    else:
        p = _column(f"probability of {method!r}", probability, rows)[rows.test]
        there = ~np.isnan(p)
        checked_probabilities(p[there], int(there.sum()))
        parts.append(_Part(probability_statistic(p, label, there), there))
    if unsafe is not None:
        flags = _column(f"unsafe flag of {method!r}", unsafe, rows)[rows.test]
        flagged = scored & ~np.isnan(flags)
        parts.append(_Part(unsafe_statistic(tested, label, flags == 1, flagged), flagged))
    return parts


def _mapped(confidence: Floats, rows: _Rows, mapping: str, suffix: str) -> _Part:
    """Calibration metrics of scores that a map, fitted on the validation rows, turns to probabilities."""
    label, tested = rows.label[rows.test], confidence[rows.test]
    p, there = np.full(len(tested), np.nan), ~np.isnan(tested)
    fit_on = rows.validation & ~np.isnan(confidence)
    if np.isfinite(confidence[fit_on]).any():
        p[there] = fit_mapping(mapping, confidence[fit_on], rows.label[fit_on])(tested[there])
    else:
        there = np.zeros_like(there)
    recorded: dict[str, object] = {"mapping": mapping, "n_validation": int(fit_on.sum())}
    return _Part(probability_statistic(p, label, there, suffix), there, recorded)


def _column(name: str, values: ArrayLike, rows: _Rows) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    _check_length(name, column, len(rows.label))
    return column


def _check_length(name: str, values: NDArray[Any], n: int) -> None:
    if values.shape != (n,):
        raise DataError(
            f"{name} has shape {values.shape}, but the cell has {n} labels. Align the rows first."
        )


def _row(
    method: str, metric: str, interval: Interval, part: _Part, n_test: int, settings: EvaluationSettings
) -> MetricRow:
    n = int(part.present.sum())
    record = {
        **settings.record,
        **part.settings,
        **METRIC_SETTINGS.get(metric.removesuffix("_platt"), {}),
        "level": settings.level,
        "n_resamples": settings.n_resamples,
        "n_resamples_used": interval.n_resamples_used,
        "seed": settings.seed,
    }
    value, lo, hi = (None if math.isnan(x) else x for x in interval[:3])
    return MetricRow(method, metric, value, lo, hi, n, n_test - n, json.dumps(record, sort_keys=True))
