"""Every method against one reference on the test rows of one cell that both have; corrected as Holm does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError
from sgpu.evaluation.bootstrap import Difference, differences
from sgpu.evaluation.cell import (
    CellRows,
    EvaluationSettings,
    MethodColumn,
    confidence_of,
    defined,
    given_forecast,
    mapped_forecast,
)
from sgpu.evaluation.delong import delong
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.metrics import BINS, probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic, auarc_20_of, auarc_of, auroc_of


def holm(p: ArrayLike) -> Floats:
    """(m,) adjusted p values: rejecting those below a level errs anywhere with at most that probability.

    Undefined ones (NaN) stay NaN and do not count as comparisons. Raises DataError outside [0, 1].
    Source: Holm 1979.
    """
    values = np.asarray(p, dtype=np.float64)
    bad = np.flatnonzero((values < 0) | (values > 1))
    if values.ndim != 1 or bad.size:
        problem = f"value {bad[0]} is {values.flat[bad[0]]}" if bad.size else f"the shape is {values.shape}"
        raise DataError(f"p values must be a vector within [0, 1], but {problem}.")
    adjusted = np.full(len(values), np.nan)
    compared = np.flatnonzero(~np.isnan(values))
    ordered = compared[np.argsort(values[compared], kind="stable")]
    # The smallest is multiplied by their number, the next by one less; a larger p never gets a smaller one.
    factors = np.arange(len(ordered), 0, -1)
    adjusted[ordered] = np.minimum(np.maximum.accumulate(values[ordered] * factors), 1.0)
    return adjusted


REFERENCE = "sgpu"
# The metrics that tables of methods show. Scores without a probability are mapped as in those tables.
RANKED = {"auroc": auroc_of, "auarc": auarc_of, "auarc_20": auarc_20_of}
MAPPING = "minmax"

Test = Literal["delong", "paired bootstrap"]
Kind = Literal["confidence", "probability"]  # of a column


@dataclass(frozen=True)
class ComparisonRow:
    """``method`` minus ``reference`` in one metric; None where undefined, with the reason in ``settings``.

    ``lo`` and ``hi`` are of the paired bootstrap. ``p`` is two-sided and of ``test``: DeLong's for auroc.
    ``p_holm`` is corrected over the methods of the cell, each metric for itself. ``n_missing`` counts the
    test rows that lack a label or one of the two methods.
    """

    method: str
    reference: str
    metric: str
    difference: float | None
    lo: float | None
    hi: float | None
    p: float | None
    p_holm: float | None
    test: Test
    n: int
    n_missing: int
    settings: str


@dataclass(frozen=True)
class _Pair:
    """A method and the reference in one kind of column, on the rows that both have."""

    method: str
    kind: Kind
    own: MethodColumn
    reference: MethodColumn

    @property
    def common(self) -> Bools:
        return self.own.present & self.reference.present

    def key(self, method: str) -> tuple[str, str, bytes]:
        """Equal for what is the same statistic, so that the reference is drawn once for many methods."""
        return method, self.kind, self.common.tobytes()

    def statistic(self, column: MethodColumn, label: Floats) -> Statistic:
        if self.kind == "confidence":
            return ranking_statistic(column.values, label, self.common, RANKED)
        return probability_statistic(column.values, label, self.common, ece_bins={"width": {"ece": BINS}})


def compare_cell(
    confidence: Mapping[str, ArrayLike],
    probability: Mapping[str, ArrayLike | None],
    label: ArrayLike,
    split: ArrayLike,
    *,
    reference: str = REFERENCE,
    settings: EvaluationSettings | None = None,
) -> list[ComparisonRow]:
    """Differences of every other method to ``reference`` on the "test" rows; arguments as `evaluate_cell`.

    The resamples are those of `evaluate_cell`. No rows where the cell has no ``reference``. Raises DataError
    for arrays of another length, other labels, probabilities outside [0, 1].
    """
    settings = settings or EvaluationSettings()
    if reference not in confidence:
        return []
    rows = CellRows.of(label, split)
    columns = {
        method: _columns(method, scores, probability.get(method), rows)
        for method, scores in confidence.items()
    }
    pairs = [
        _Pair(method, kind, own[kind], columns[reference][kind])
        for method, own in columns.items()
        if method != reference
        for kind in own
    ]
    statistics: dict[tuple[str, str, bytes], list[Statistic]] = {}
    for pair in pairs:
        for method, column in ((pair.method, pair.own), (reference, pair.reference)):
            if (key := pair.key(method)) not in statistics:
                statistics[key] = [pair.statistic(column, rows.tested_label)]
    by_pair = differences(
        statistics,
        [(pair.key(pair.method), pair.key(reference)) for pair in pairs],
        int(rows.test.sum()),
        n_resamples=settings.n_resamples,
        level=settings.level,
        seed=settings.seed,
    )
    return _corrected(
        [
            row
            for pair, by_metric in zip(pairs, by_pair, strict=True)
            for row in _rows_of(pair, by_metric, rows, reference, settings)
        ]
    )


def _columns(
    method: str, scores: ArrayLike, probability: ArrayLike | None, rows: CellRows
) -> dict[Kind, MethodColumn]:
    confidence, scored = confidence_of(method, scores, rows)
    if probability is None:
        forecast = mapped_forecast(MAPPING, confidence, rows)
    else:
        forecast = given_forecast(method, probability, rows)
    return {"confidence": scored, "probability": forecast}


def _rows_of(
    pair: _Pair,
    by_metric: Mapping[str, Difference],
    rows: CellRows,
    reference: str,
    settings: EvaluationSettings,
) -> Iterator[ComparisonRow]:
    common = pair.common
    n = int(common.sum())
    for metric, difference in by_metric.items():
        test: Test = "paired bootstrap"
        p, why = difference.p, ""
        if metric == "auroc":
            area = delong(pair.own.values[common], pair.reference.values[common], rows.tested_label[common])
            test, p, why = "delong", area.p, area.why
        if not n:
            why = pair.own.undefined or pair.reference.undefined or "no labelled test row has both methods"
        record = settings.record_of(pair.method, difference.n_resamples_used)
        if why:
            record["undefined"] = why
        yield ComparisonRow(
            method=pair.method,
            reference=reference,
            metric=metric,
            difference=defined(difference.value),
            lo=defined(difference.lo),
            hi=defined(difference.hi),
            p=defined(p),
            p_holm=None,
            test=test,
            n=n,
            n_missing=rows.n_test - n,
            settings=json.dumps(record, sort_keys=True),
        )


def _corrected(rows: list[ComparisonRow]) -> list[ComparisonRow]:
    """The rows with ``p_holm``, each metric a family of its own."""
    adjusted: dict[tuple[str, str], float | None] = {}
    for metric in {row.metric for row in rows}:
        family = [row for row in rows if row.metric == metric]
        for row, p in zip(family, holm([math.nan if r.p is None else r.p for r in family]), strict=True):
            adjusted[row.method, metric] = defined(float(p))
    return [replace(row, p_holm=adjusted[row.method, row.metric]) for row in rows]
