"""Bootstrap of all methods at once against a loop over scikit-learn's functions, on the same resamples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from sgpu.evaluation.auroc import auroc_of
from sgpu.evaluation.bootstrap import replicates, resampled_rows
from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.metrics import probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import Statistic

T = TypeVar("T")

N_ROWS = 5_000
N_METHODS = 12
N_RESAMPLES = 2_000
N_BASELINE = 20  # resamples that the loop is measured on
BOUND = 20.0
SAME = 1e-12

# The functions of scikit-learn that give one of our metrics, label first, and those that give the bins of
# a calibration error. It has none for AUARC and selective accuracy.
SCORES: Mapping[str, Callable[..., float]] = {
    "auroc": roc_auc_score,
    "brier": brier_score_loss,
    "log_loss": log_loss,
}
BINNINGS: Mapping[str, dict[str, object]] = {
    "ece": {"n_bins": 15, "strategy": "uniform"},
    "ece_mass": {"n_bins": 10, "strategy": "quantile"},
}


def run() -> list[dict[str, Any]]:
    """CPU seconds of both, scaled up for the loop, and how far their replicates differ."""
    forecasts, label = _forecasts()
    ours_auroc, _ = _timed(lambda: _replicates(forecasts, label, _auroc))
    ours_all, drawn = _timed(lambda: _replicates(forecasts, label, _every_metric))
    rows = np.concatenate(list(resampled_rows(N_ROWS, N_BASELINE, seed=0)))
    seconds, difference = {}, 0.0
    for metric, score in SCORES.items():
        seconds[metric], looped = _timed(partial(_loop, forecasts, label, rows, score))
        ours = np.stack([drawn[method][metric][:N_BASELINE] for method in forecasts])
        difference = max(difference, float(np.abs(ours - np.array(looped)).max()))
    for metric, settings in BINNINGS.items():
        bins = partial(calibration_curve, **settings)
        seconds[metric], _ = _timed(partial(_loop, forecasts, label, rows, bins))
    return [
        _speed("bootstrap: AUROC", ours_auroc, seconds["auroc"], "roc_auc_score"),
        _speed(
            "bootstrap: nine metrics against five",
            ours_all,
            sum(seconds.values()),
            "roc_auc_score, brier_score_loss, log_loss, calibration_curve twice",
        ),
        {
            "name": "bootstrap: largest difference of a replicate",
            "ours": difference,
            "baseline": SAME,
            "ratio": SAME / difference if difference else float("inf"),
            "bound": 1.0,
            "unit": "absolute",
            "note": f"{', '.join(SCORES)} on the same {N_BASELINE} resamples; baseline is what is allowed",
        },
    ]


def _replicates(
    forecasts: Mapping[str, Floats], label: Floats, bind: Callable[[Floats, Floats], list[Statistic]]
) -> dict[str, dict[str, Floats]]:
    statistics = {method: bind(p, label) for method, p in forecasts.items()}
    return replicates(statistics, N_ROWS, n_resamples=N_RESAMPLES)


def _auroc(p: Floats, label: Floats) -> list[Statistic]:
    return [ranking_statistic(p, label, metrics={"auroc": auroc_of})]


def _every_metric(p: Floats, label: Floats) -> list[Statistic]:
    return [ranking_statistic(p, label), probability_statistic(p, label)]


def _loop(
    forecasts: Mapping[str, Floats], label: Floats, rows: NDArray[np.int64], function: Callable[..., T]
) -> list[list[T]]:
    return [[function(label[r], p[r]) for r in rows] for p in forecasts.values()]


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
            f"scikit-learn's {functions}, measured on {N_BASELINE} resamples and scaled linearly"
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
