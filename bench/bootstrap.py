"""Bootstrap of all metrics and methods at once against a loop over scikit-learn's functions, same resamples.

scikit-learn has functions for nine of the metrics: the loop that is timed calls these only, and of a
calibration error it takes the bins alone. The loop that values are compared with has them all.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from sgpu.evaluation.bootstrap import replicates, resampled_rows
from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.metrics import COVERAGES, ECE_BINS, probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic, auroc_of

T = TypeVar("T")
Metric = Callable[[Floats, Floats], float]  # label, probability

N_ROWS = 5_000
N_METHODS = 12
N_RESAMPLES = 2_000
N_BASELINE = 20  # resamples that the loop is measured on
N_MEMORY = 400  # resamples that memory is measured on: several blocks
BOUND = 20.0
SAME = 1e-12
MEMORY = 128.0  # MiB allowed above what was there


def run() -> list[dict[str, Any]]:
    """CPU seconds of both, scaled up for the loop, how far their replicates differ, and our memory."""
    forecasts, label = _forecasts()
    ours_auroc, _ = _timed(lambda: _replicates(forecasts, label, _auroc, N_RESAMPLES))
    ours_all, drawn = _timed(lambda: _replicates(forecasts, label, _every_metric, N_RESAMPLES))
    rows = np.concatenate(list(resampled_rows(N_ROWS, N_BASELINE, seed=0)))
    samples = [[(label[r], p[r]) for r in rows] for p in forecasts.values()]
    seconds = {
        metric: _timed(partial(_loop, samples, function))[0] for metric, function in SCIKIT_LEARN.items()
    }
    difference = 0.0
    for metric, reference in REFERENCES.items():
        ours = np.stack([drawn[method][metric][:N_BASELINE] for method in forecasts])
        difference = max(difference, float(np.abs(ours - np.array(_loop(samples, reference))).max()))
    n_metrics = len(next(iter(drawn.values())))
    mebibytes = _peak(lambda: _replicates(forecasts, label, _every_metric, N_MEMORY))
    return [
        _speed("bootstrap: AUROC", ours_auroc, seconds["auroc"], "roc_auc_score"),
        _speed(
            f"bootstrap: our {n_metrics} metrics against the {len(SCIKIT_LEARN)} of scikit-learn",
            ours_all,
            sum(seconds.values()),
            "roc_auc_score, brier_score_loss, log_loss, calibration_curve six times",
        ),
        {
            "name": "bootstrap: largest difference of a replicate",
            "ours": difference,
            "baseline": SAME,
            "ratio": SAME / difference if difference else float("inf"),
            "bound": 1.0,
            "unit": "absolute",
            "note": f"all {n_metrics} metrics on the same {N_BASELINE} resamples; baseline: what is allowed",
        },
        {
            "name": "bootstrap: peak memory",
            "ours": mebibytes,
            "baseline": MEMORY,
            "ratio": MEMORY / mebibytes,
            "bound": 1.0,
            "unit": "MiB",
            "note": (
                f"{N_MEMORY} of the resamples, in blocks: more change nothing but a vector for each metric; "
                "baseline: what is allowed"
            ),
        },
    ]


def _width_error(label: Floats, p: Floats, bins: int) -> float:
    right, mean = calibration_curve(label, p, n_bins=bins, strategy="uniform")
    rows = np.bincount(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p), minlength=bins)
    return float((np.abs(right - mean) * rows[rows > 0]).sum() / len(p))


def _mass_error(label: Floats, p: Floats, bins: int) -> float:
    """By ranks: the edges of calibration_curve lie between two rows, ours on one."""
    ranked = np.sort(p)
    edges = np.unique(ranked[np.ceil(np.arange(1, bins + 1) * len(p) / bins).astype(int) - 1])
    return float(np.abs(np.bincount(np.searchsorted(edges, p), p - label)).sum() / len(p))


def _tie_averaged(label: Floats, p: Floats) -> Floats:
    """The labels, most confident first, each replaced by the mean of the rows of its probability."""
    _, group, rows = np.unique(-p, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(group, label) / rows, rows)


def _auarc(label: Floats, p: Floats) -> float:
    return float(np.mean(np.cumsum(_tie_averaged(label, p)) / np.arange(1, len(p) + 1)))


def _auarc_20(label: Floats, p: Floats) -> float:
    shares = np.linspace(0.1, 1, 20)
    return float(sum(label[-p <= np.quantile(-p, share)].mean() for share in shares) * 0.9 / 19)


def _selective_accuracy(label: Floats, p: Floats, coverage: float) -> float:
    return float(_tie_averaged(label, p)[: round(coverage * len(p))].mean())


SCIKIT_LEARN: dict[str, Callable[[Floats, Floats], object]] = {
    "auroc": roc_auc_score,
    "brier": brier_score_loss,
    "log_loss": log_loss,
    **{
        name: partial(calibration_curve, n_bins=bins, strategy=strategy)
        for binning, strategy in (("width", "uniform"), ("mass", "quantile"))
        for name, bins in ECE_BINS[binning].items()
    },
}
REFERENCES: dict[str, Metric] = {
    "auroc": roc_auc_score,
    "brier": brier_score_loss,
    "log_loss": log_loss,
    **{name: partial(_width_error, bins=bins) for name, bins in ECE_BINS["width"].items()},
    **{name: partial(_mass_error, bins=bins) for name, bins in ECE_BINS["mass"].items()},
    "accuracy": lambda label, p: float(label.mean()),
    "auarc": _auarc,
    "auarc_20": _auarc_20,
    **{name: partial(_selective_accuracy, coverage=share) for name, share in COVERAGES.items()},
}


def _replicates(
    forecasts: Mapping[str, Floats],
    label: Floats,
    bind: Callable[[Floats, Floats], list[Statistic]],
    n_resamples: int,
) -> dict[str, dict[str, Floats]]:
    statistics = {method: bind(p, label) for method, p in forecasts.items()}
    return replicates(statistics, N_ROWS, n_resamples=n_resamples)


def _auroc(p: Floats, label: Floats) -> list[Statistic]:
    return [ranking_statistic(p, label, metrics={"auroc": auroc_of})]


def _every_metric(p: Floats, label: Floats) -> list[Statistic]:
    return [ranking_statistic(p, label), probability_statistic(p, label)]


def _loop(
    samples: list[list[tuple[Floats, Floats]]], function: Callable[[Floats, Floats], T]
) -> list[list[T]]:
    return [[function(label, p) for label, p in method] for method in samples]


def _speed(name: str, ours: float, loop: float, functions: str) -> dict[str, Any]:
    baseline = loop * N_RESAMPLES / N_BASELINE
    return {
        "name": name,
        "ours": ours,
        "baseline": baseline,
        "ratio": baseline / ours,
        "bound": BOUND,
        "unit": "CPU s",
        "note": (
            f"{N_ROWS} rows x {N_RESAMPLES} resamples x {N_METHODS} methods; baseline is a loop over "
            f"{functions}, measured on {N_BASELINE} resamples and scaled linearly"
        ),
    }


def _forecasts() -> tuple[dict[str, Floats], Floats]:
    """Probabilities from better to worse methods, every other one rounded so that it has ties."""
    rng = np.random.default_rng(0)
    label = (rng.random(N_ROWS) < 0.6).astype(np.float64)
    forecasts = {}
    for i in range(N_METHODS):
        logit = label + (i + 1) * rng.normal(size=N_ROWS)
        forecasts[f"method {i}"] = np.round(1 / (1 + np.exp(-logit)), 3 if i % 2 else 12)
    return forecasts, label


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def _peak(work: Callable[[], object]) -> float:
    """MiB allocated at most at once; NumPy tells tracemalloc of its arrays."""
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1] / 2**20)
    finally:
        tracemalloc.stop()
