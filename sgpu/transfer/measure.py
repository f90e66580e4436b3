"""Metrics of every classifier on its target, paired tests against its rivals, curves and recalibration.

Also the tables of a transfer study, whose columns of questions and metrics are those of
`sgpu.storage.tables`, and the points of curves: metrics as means over seeds, all on the same test rows and
the same resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from sgpu.evaluation.bootstrap import bootstrap_p, evaluate, percentile_interval, replicates
from sgpu.evaluation.cell import EvaluationSettings, defined, evaluate_cell
from sgpu.evaluation.comparison import compare_cell
from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.mapping import UndefinedMap
from sgpu.evaluation.metrics import BINS, probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic, auroc_of
from sgpu.hashing import derived_seed
from sgpu.storage.tables import COMPARISONS, METRICS, Table, columns
from sgpu.transfer.designs import IN_DOMAIN, POOLED, Plan
from sgpu.transfer.guard import Rule, check_sample
from sgpu.transfer.recalibration import recalibrated
from sgpu.transfer.rows import SourceCell

CURVE = "curve"
_TARGET = columns(pa.string(), "model", "dataset", nullable=False)

# What each classifier says of all questions of its target; those of learning curves under design "curve".
FORECASTS = Table.of(
    "transfer_forecasts",
    ("design",),
    *_TARGET,
    pa.field("method", pa.string(), nullable=False),
    pa.field("axis", pa.string()),  # of a curve: cells or rows
    pa.field("size", pa.int64()),  # how many of them trained it
    pa.field("seed", pa.int64()),  # of the draw of the pool
    *columns(pa.string(), "question_id", "split", nullable=False),
    pa.field("label", pa.int8()),
    pa.field("probability", pa.float64()),  # null: no spectrum
    pa.field("fit_id", pa.string()),
)

# Files of results, in long form. `method` has each name once for a target, so that other tools can read them.
METRIC_FILE = pa.schema([*_TARGET, pa.field("design", pa.string()), *METRICS.schema])
COMPARISON_FILE = pa.schema([*_TARGET, *COMPARISONS.schema])
# A point is a mean over seeds; `difference` is to no label of the target at all.
POINT_FILE = pa.schema(
    [
        *_TARGET,
        pa.field("design", pa.string()),
        pa.field("axis", pa.string()),  # cells, rows, or the map of a recalibration
        pa.field("size", pa.int64()),  # source cells, training rows, or labels of the target
        pa.field("metric", pa.string()),
        *columns(pa.float64(), "value", "lo", "hi"),
        *columns(pa.float64(), *(f"difference{end}" for end in ("", "_lo", "_hi", "_p"))),
        pa.field("seeds", pa.int64()),  # of which the point is a mean
        *columns(pa.int64(), "n", "n_missing"),
        pa.field("undefined", pa.string()),
    ]
)


@dataclass(frozen=True)
class Point:
    """The mean of a metric over seeds; None where undefined. ``difference``: the point minus the first one.

    Intervals are over the test rows, with the seeds as they were drawn.
    """

    size: int
    metric: str
    seeds: int = 0
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    difference: float | None = None
    difference_lo: float | None = None
    difference_hi: float | None = None
    difference_p: float | None = None


def points(
    forecasts: Mapping[int, Sequence[Floats]], label: Floats, *, n_resamples: int, seed: int
) -> list[Point]:
    """Points of ``forecasts``, by size the probabilities (n,) of each seed; the first size is the reference.

    ``label`` is (n,); nothing may be missing.
    """
    statistics: dict[tuple[int, int], list[Statistic]] = {
        (size, i): [
            ranking_statistic(probability, label, metrics={"auroc": auroc_of}),
            probability_statistic(probability, label, ece_bins={"width": {"ece": BINS}}),
        ]
        for size, seeds in forecasts.items()
        for i, probability in enumerate(seeds)
    }
    at = evaluate(statistics, np.ones((len(label), 1)))
    drawn = replicates(statistics, len(label), n_resamples=n_resamples, seed=seed)
    means: list[Point] = []
    reference: dict[str, tuple[float, Floats]] = {}
    for size, seeds in forecasts.items():
        keys = [(size, i) for i in range(len(seeds))]
        for metric in at[keys[0]] if keys else ():
            value = float(np.mean([at[key][metric][0] for key in keys]))
            replicate = np.mean([drawn[key][metric] for key in keys], axis=0)
            first = reference.setdefault(metric, (value, replicate))
            interval = percentile_interval(value, replicate)[:3]
            moved = percentile_interval(value - first[0], replicate - first[1])[:3]
            p = float("nan") if replicate is first[1] else bootstrap_p(np.round(replicate - first[1], 12))
            means.append(Point(size, metric, len(keys), *map(defined, (*interval, *moved, p))))
    return means


MEASURED = ("auroc", "auarc", "auarc_20", "ece", "brier", "log_loss", "accuracy")


@dataclass(frozen=True)
class Forecast:
    """What one classifier says of all R rows of its target; ``record`` goes into the settings of metrics."""

    plan: Plan
    probability: Floats  # (R,), NaN where a row has no spectrum
    fit_id: str
    record: Mapping[str, object] = field(default_factory=dict)


def measured(
    target: SourceCell, forecasts: Sequence[Forecast], *, n_resamples: int, seed: int
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of metrics and of paired tests on one target's test rows.

    Everything is compared with the in-domain classifier, and the training-free methods with each pooled one.
    """
    said = {f.plan.method: f.probability for f in forecasts}
    confidence = {**target.confidence, **said}
    probability = {name: said.get(name) for name in confidence}
    records = {f.plan.method: f.record for f in forecasts}
    settings = EvaluationSettings(n_resamples=n_resamples, seed=seed, methods=records)
    arrays = (target.rows.label, target.split)
    designs = {f.plan.method: f.plan.design for f in forecasts}
    named = asdict(target.cell)
    metrics: list[dict[str, object]] = [
        {**named, "design": designs.get(row.method, "training_free"), **asdict(row)}
        for row in evaluate_cell(confidence, probability, *arrays, settings=settings)
        if row.metric in MEASURED
    ]
    compared: list[dict[str, object]] = []
    pooled = [f.plan.method for f in forecasts if f.plan.design in POOLED]
    for reference in (IN_DOMAIN, *pooled):
        others = set(confidence) if reference == IN_DOMAIN else {reference, *target.confidence}
        some = {name: scores for name, scores in confidence.items() if name in others}
        tests = compare_cell(some, probability, *arrays, reference=reference, settings=settings)
        compared += [{**named, **asdict(row)} for row in tests]
    return metrics, compared


def curve(
    target: SourceCell, forecasts: Sequence[Forecast], *, n_resamples: int, seed: int
) -> list[dict[str, object]]:
    """Points of the learning curves of one target, by axis and size, each a mean over seeds."""
    rows: list[dict[str, object]] = []
    test = (target.split == "test") & target.rows.usable
    for axis in dict.fromkeys(f.plan.axis for f in forecasts) if test.any() else ():
        by_size: dict[int, list[Floats]] = {}
        members = [f for f in forecasts if f.plan.axis == axis]
        for member in sorted(members, key=lambda f: f.plan.size or 0):
            by_size.setdefault(member.plan.size or 0, []).append(member.probability[test])
        means = points(by_size, target.rows.label[test], n_resamples=n_resamples, seed=seed)
        rows += [_row(target, members[0].plan.design, str(axis), point) for point in means]
    return rows


def recalibration(
    target: SourceCell,
    forecast: Forecast,
    *,
    name: str,
    labels: Sequence[int],
    seeds: int,
    n_resamples: int,
    seed: int,
) -> list[dict[str, object]]:
    """ECE and others on the test rows before and after ``labels`` labelled rows of the target.

    The sample comes from its training and validation questions, larger ones holding the smaller. A size
    beyond what there is, or that determines no map, is a row without values that says why. Raises
    LeakageError if a labelled row is measured on.
    """
    test = (target.split == "test") & target.rows.usable
    evaluated = target.rows.take(test)
    rule = Rule(target.cell, frozenset(), evaluated.keys)
    open_ = (target.split != "test") & target.rows.usable
    free = np.flatnonzero(open_)[rule.allows(target.rows.take(open_).keys)]
    by_size: dict[int, list[Floats]] = {size: [] for size in labels}
    why: dict[int, str] = {}
    for size in labels:
        if size > len(free):
            why[size] = f"the target has {len(free)} labelled rows outside its test questions"
            continue
        for i in range(seeds if size else 1):
            order = np.random.default_rng(derived_seed(seed, str(target.cell), i)).permutation(free)[:size]
            sample = target.rows.take(order)
            check_sample(sample, rule)
            said = forecast.probability
            try:
                by_size[size].append(recalibrated(name, said[test], said[order], sample.label))
            except UndefinedMap as error:
                why[size] = str(error)
    means = points(by_size, evaluated.label, n_resamples=n_resamples, seed=seed) if test.any() else []
    empty = [Point(size, "ece") for size, moved in by_size.items() if not moved]
    design = forecast.plan.design
    return [_row(target, design, name, point, why.get(point.size)) for point in (*means, *empty)]


def _row(
    target: SourceCell, design: str, axis: str, point: Point, why: str | None = None
) -> dict[str, object]:
    test = target.split == "test"
    n = int((test & target.rows.usable).sum())
    return {
        **asdict(target.cell),
        "design": design,
        "axis": axis,
        **asdict(point),
        "n": n,
        "n_missing": int(test.sum()) - n,
        "undefined": why,
    }


def forecast_rows(target: SourceCell, forecast: Forecast) -> pl.DataFrame:
    """A forecast in the columns of the table `sgpu.transfer.measure.FORECASTS`."""
    rows = target.rows
    return pl.DataFrame(
        {
            "model": rows.keys["model"],
            "dataset": rows.keys["dataset"],
            "method": [forecast.plan.method] * len(rows),
            "axis": pl.Series([forecast.plan.axis] * len(rows), dtype=pl.String),
            "size": pl.Series([forecast.plan.size] * len(rows), dtype=pl.Int64),
            "seed": pl.Series([forecast.plan.seed] * len(rows), dtype=pl.Int64),
            "question_id": rows.keys["question_id"],
            "split": target.split.tolist(),
            "label": pl.Series(rows.label).fill_nan(None).cast(pl.Int8),
            "probability": pl.Series(forecast.probability).fill_nan(None),
            "fit_id": [forecast.fit_id] * len(rows),
        }
    )
