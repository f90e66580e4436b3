"""Every metric of every method on the test split of one cell, in long form; what is missing stays missing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError
from sgpu.evaluation.bootstrap import Interval, intervals
from sgpu.evaluation.delong import FEW_ROWS, few_rows_interval
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_probabilities
from sgpu.evaluation.mapping import UndefinedMap, fit_mapping
from sgpu.evaluation.metrics import DEFINITIONS, probability_statistic, ranking_statistic, unsafe_statistic
from sgpu.evaluation.ranking import Statistic

NO_ROWS = "no test row has both a label and a value of this method"


@dataclass(frozen=True)
class CellRows:
    """The labels of a cell's Q rows and the labelled rows of its two splits, (Q,) each."""

    label: Floats
    test: Bools
    validation: Bools
    n_test: int  # test rows, with a label or without

    @classmethod
    def of(cls, label: ArrayLike, split: ArrayLike) -> CellRows:
        """Read ``label`` (1, 0 or NaN/None) and ``split``, (Q,) each; raises DataError for other labels."""
        labels, splits = np.asarray(label, dtype=np.float64), np.asarray(split, dtype=np.str_)
        labelled = ~np.isnan(labels)
        checked_labels(labels[labelled])
        _check_length("split", splits, len(labels))
        test = splits == "test"
        return cls(labels, test & labelled, (splits == "validation") & labelled, int(test.sum()))

    @property
    def tested_label(self) -> Floats:
        """(T,) labels of the labelled test rows."""
        return self.label[self.test]

    def column(self, name: str, values: ArrayLike) -> Floats:
        """(Q,) ``values`` as float64; raises DataError for another length."""
        column = np.asarray(values, dtype=np.float64)
        _check_length(name, column, len(self.label))
        return column


@dataclass(frozen=True)
class MethodColumn:
    """What a method says of the T labelled test rows, NaN where not ``present``, and how it was got."""

    values: Floats
    present: Bools
    settings: dict[str, object] = field(default_factory=dict)
    undefined: str = ""  # why there is none


def confidence_of(method: str, scores: ArrayLike, rows: CellRows) -> tuple[Floats, MethodColumn]:
    """The method's ``scores`` (Q,), and what of them is of the test rows."""
    confidence = rows.column(f"confidence of {method!r}", scores)
    tested = confidence[rows.test]
    return confidence, MethodColumn(tested, ~np.isnan(tested))


def given_forecast(method: str, probability: ArrayLike, rows: CellRows) -> MethodColumn:
    """The method's own ``probability`` (Q,); raises DataError outside [0, 1]."""
    p = rows.column(f"probability of {method!r}", probability)[rows.test]
    present = ~np.isnan(p)
    checked_probabilities(p[present], int(present.sum()))
    return MethodColumn(p, present)


def mapped_forecast(mapping: str, confidence: Floats, rows: CellRows) -> MethodColumn:
    """``confidence`` (Q,) turned into probabilities by a map fitted on the validation rows.

    Where they do not determine the map, nothing is present and ``undefined`` says why.
    """
    fit_on = rows.validation & ~np.isnan(confidence)
    recorded: dict[str, object] = {"mapping": mapping, "n_validation": int(fit_on.sum())}
    tested = confidence[rows.test]
    try:
        p = fit_mapping(mapping, confidence[fit_on], rows.label[fit_on])(tested)
    except UndefinedMap as error:
        nothing = np.full(len(tested), np.nan)
        return MethodColumn(nothing, np.isfinite(nothing), recorded, str(error))
    return MethodColumn(p, ~np.isnan(p), recorded)


def _check_length(name: str, values: NDArray[Any], n: int) -> None:
    if values.shape != (n,):
        raise DataError(
            f"{name} has shape {values.shape}, but the cell has {n} labels. Align the rows first."
        )


# Scores that are no probabilities get one by each of these: the first for comparison with the paper, under
# the plain metric names, the others under names that end in the suffix.
SCORE_MAPPINGS = {"minmax": "", "platt": "_platt", "isotonic": "_isotonic"}

# Why a metric can lack a value although it has rows.
UNDEFINED = {
    "auroc": "all rows are of one class",
    "auroc_kept": "all kept rows are of one class",
    "accuracy_unsafe": "no row is flagged",
    "accuracy_kept": "every row is flagged",
}


@dataclass(frozen=True)
class MetricRow:
    """One row of the metrics table; None where a metric is undefined, with the reason in ``settings``."""

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
    """How intervals are drawn; ``record`` goes into the settings of every row, ``methods`` by method."""

    n_resamples: int = 2000
    level: float = 0.95
    seed: int = 0
    record: Mapping[str, object] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def record_of(self, method: str, n_resamples_used: int) -> dict[str, object]:
        """What the settings of every row of this method say."""
        own = self.methods.get(method)
        return {
            **self.record,
            **({"method": dict(own)} if own else {}),
            "level": self.level,
            "n_resamples": self.n_resamples,
            "n_resamples_used": n_resamples_used,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class _Part:
    """Metrics that come from one statistic of a column, whose names end in the suffix."""

    statistic: Statistic
    column: MethodColumn
    suffix: str = ""

    def why_undefined(self, metric: str) -> str:
        """Why ``metric`` has no value."""
        if not self.column.present.any():
            return self.column.undefined or NO_ROWS
        return UNDEFINED[metric]


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
    ``n_missing``. Methods without a ``probability`` get one by each of the `SCORE_MAPPINGS`, fitted on the
    "validation" rows; where those do not determine the map, its metrics are None with n = 0. All methods
    are resampled alike. Raises DataError for arrays of another length, other labels, probabilities outside
    [0, 1].
    """
    settings = settings or EvaluationSettings()
    rows = CellRows.of(label, split)
    parts = {
        (method, i): part
        for method, scores in confidence.items()
        for i, part in enumerate(
            _parts_of(method, scores, probability.get(method), (unsafe or {}).get(method), rows)
        )
    }
    by_part = intervals(
        {key: [part.statistic] for key, part in parts.items()},
        int(rows.test.sum()),
        n_resamples=settings.n_resamples,
        level=settings.level,
        seed=settings.seed,
    )
    return [
        _row(key[0], metric, interval, parts[key], rows, settings)
        for key, metrics in by_part.items()
        for metric, interval in metrics.items()
    ]


# Metrics of the chosen answer get the first suffix, and those of the first answer the second.
ANSWER, FIRST = "_answer", "_first_answer"
OF_ANSWERS = {ANSWER: ("accuracy", "auroc", "auarc", "ece", "brier", "log_loss"), FIRST: ("accuracy",)}


def evaluate_answers(
    method: str,
    p_answer: ArrayLike,
    chosen_vote: ArrayLike,
    first_vote: ArrayLike,
    split: ArrayLike,
    settings: EvaluationSettings | None = None,
) -> list[MetricRow]:
    """Return metric rows of the answers that a method chooses with probabilities ``p_answer`` (Q,).

    Votes (Q,) are 1, 0 or NaN. Raises DataError as `evaluate_cell`.
    """
    p, rows = {method: p_answer}, list[MetricRow]()
    for suffix, vote in ((ANSWER, chosen_vote), (FIRST, first_vote)):
        measured = evaluate_cell(p, p, vote, split, settings=settings)
        rows += [
            replace(row, metric=row.metric + suffix) for row in measured if row.metric in OF_ANSWERS[suffix]
        ]
    return rows


def _parts_of(
    method: str, scores: ArrayLike, probability: ArrayLike | None, unsafe: ArrayLike | None, rows: CellRows
) -> list[_Part]:
    confidence, scored = confidence_of(method, scores, rows)
    label = rows.tested_label
    parts = [_Part(ranking_statistic(scored.values, label, scored.present), scored)]
    if probability is None:
        forecasts = {
            suffix: mapped_forecast(name, confidence, rows) for name, suffix in SCORE_MAPPINGS.items()
        }
    else:
        forecasts = {"": given_forecast(method, probability, rows)}
    for suffix, forecast in forecasts.items():
        statistic = probability_statistic(forecast.values, label, forecast.present, suffix)
        parts.append(_Part(statistic, forecast, suffix))
    if unsafe is not None:
        flags = rows.column(f"unsafe flag of {method!r}", unsafe)[rows.test]
        flagged = replace(scored, present=scored.present & ~np.isnan(flags))
        parts.append(_Part(unsafe_statistic(scored.values, label, flags == 1, flagged.present), flagged))
    return parts


def _bounds(
    metric: str, interval: Interval, column: MethodColumn, rows: CellRows, level: float
) -> tuple[tuple[float, float], dict[str, object]]:
    """The bounds of a metric, and what its settings say of them where they are not of the bootstrap."""
    if metric == "auroc" and not math.isnan(interval.value):
        score, label = column.values[column.present], rows.tested_label[column.present]
        n_right = int(label.sum())
        if min(n_right, len(label) - n_right) < FEW_ROWS:
            return few_rows_interval(score, label, level), {"interval": "few_rows"}
    return (interval.lo, interval.hi), {}


def _row(
    method: str, metric: str, interval: Interval, part: _Part, rows: CellRows, settings: EvaluationSettings
) -> MetricRow:
    n = int(part.column.present.sum())
    bounds, how = _bounds(metric, interval, part.column, rows, settings.level)
    record = {
        **settings.record_of(method, interval.n_resamples_used),
        **part.column.settings,
        **DEFINITIONS.get(metric.removesuffix(part.suffix), {}),
        **how,
    }
    if math.isnan(interval.value):
        record["undefined"] = part.why_undefined(metric)
    value, lo, hi = map(defined, (interval.value, *bounds))
    return MetricRow(method, metric, value, lo, hi, n, rows.n_test - n, json.dumps(record, sort_keys=True))


def defined(value: float) -> float | None:
    """None for NaN: in a table an undefined value is missing."""
    return None if math.isnan(value) else value
