"""One fit from rows to a converged model: inducing points, hyper-parameters, q(u), and a check of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaln
from torch import Tensor

from sgpu.errors import TrainingError
from sgpu.gp.hyperparameters import maximise
from sgpu.gp.inducing import inducing_points, median_distance
from sgpu.gp.inference import Bound, Effort, SparseGP, climb
from sgpu.gp.pooling import Floats, effective_rows, search_rows

# Raised when the same rows and settings would give another fit, so that kept fits are not taken for new ones.
RECIPE = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Worse than guessing (-log 2 = -0.693) by more than a converged fit can be.
LOWEST_BOUND = -0.75
# Used where the search fails: as good as searching below 300 rows. Lengthscale is in median distances.
FALLBACK_LENGTHSCALE, FALLBACK_OUTPUTSCALE = 2.0, 4.0


@dataclass(frozen=True)
class Settings:
    """How to fit; see `sgpu.gp.GPClassifier` for the meaning of each."""

    kernel: str
    inducing: int
    dtype: str
    seed: int
    hyper_rows: int


@dataclass(frozen=True)
class FitReport:
    """What a fit did.

    ``elbo`` is the evidence bound in nats per row, ``constant_evidence`` that of a classifier that only
    knows the rate; a fit that is not above it (``beats_constant`` False) found nothing in the spectra.
    ``fallback`` says that fixed hyper-parameters were better than those searched for. A ``degenerate``
    fit (one class only) has no Gaussian process, and None for all that belongs to one. ``effective_rows``
    is Kish's number of rows where they were weighted. ``seconds`` is wall time and is not saved, so that
    equal fits give equal files.
    """

    rows: int
    positives: int
    features: int
    degenerate: bool
    constant_evidence: float
    stop: str
    elbo: float | None = None
    lengthscale: float | None = None
    outputscale: float | None = None
    median_distance: float | None = None
    inducing: int | None = None
    evaluations: int = 0
    passes: int = 0
    rejects: int = 0
    fallback: bool = False
    seconds: float | None = None
    effective_rows: float | None = None

    @property
    def beats_constant(self) -> bool:
        return self.elbo is not None and self.elbo >= self.constant_evidence


@dataclass(frozen=True)
class TrainingRows:
    """Spectra x (M, N), labels y (M,), and where rows are pooled their weights and cells, both (M,)."""

    x: Floats
    y: NDArray[np.int64]
    weights: Floats | None = None
    cells: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def bound(self, model: SparseGP, effort: Effort) -> Bound:
        """The evidence of a model over these rows."""
        weights = None if self.weights is None else torch.as_tensor(self.weights)
        return Bound(model, torch.as_tensor(self.x), torch.as_tensor(self.y), effort, weights)


def constant_report(rows: TrainingRows, stop: str) -> FitReport:
    """The report of a rate without a Gaussian process; its evidence is under a uniform prior of the rate."""
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    total, ones = float(weights.sum()), float(weights @ rows.y)
    evidence = float(betaln(ones + 1, total - ones + 1)) / total
    kish = None if rows.weights is None else effective_rows(weights)
    report = FitReport(len(rows), int(rows.y.sum()), rows.x.shape[1], True, evidence, stop)
    return replace(report, effective_rows=kish)


def fit_sparse_gp(rows: TrainingRows, settings: Settings, device: str = "cpu") -> tuple[SparseGP, FitReport]:
    """Fit rows with both classes. Raises TrainingError if even fixed hyper-parameters fail."""
    start = time.perf_counter()
    median = median_distance(rows.x, settings.seed)
    points = inducing_points(rows.x, settings.inducing, settings.seed, rows.weights)
    model = SparseGP(settings.kernel, torch.as_tensor(points, dtype=DTYPES[settings.dtype], device=device))
    effort = Effort()
    bound = rows.bound(model, effort)
    elbo, stop = _search(bound, rows, settings, median)
    base = constant_report(rows, stop)
    fallback = False
    # The negation also catches NaN.
    if not elbo >= max(LOWEST_BOUND, base.constant_evidence):
        elbo, fallback = _better_of_fallback(bound, elbo, median)
    lengthscale, outputscale = (p.detach().exp().item() for p in model.log_hyperparameters)
    report = replace(
        base,
        degenerate=False,
        elbo=elbo,
        lengthscale=lengthscale,
        outputscale=outputscale,
        median_distance=median,
        inducing=len(points),
        evaluations=effort.evaluations,
        passes=effort.passes,
        rejects=effort.rejects,
        fallback=fallback,
        seconds=time.perf_counter() - start,
    )
    return model, report


def _search(bound: Bound, rows: TrainingRows, settings: Settings, median: float) -> tuple[float, str]:
    """The bound at the best hyper-parameters and why their search stopped; NaN where it failed.

    Above ``hyper_rows`` they are searched on a seeded subset, and q(u) alone is refitted to all rows.
    """
    try:
        if len(rows) <= settings.hyper_rows:
            return maximise(bound, median)
        chosen, weights = search_rows(len(rows), settings.hyper_rows, settings.seed, rows.weights, rows.cells)
        subset = TrainingRows(rows.x[chosen], rows.y[chosen], weights)
        if len(np.unique(subset.y)) < 2:
            return math.nan, f"the {len(subset)} rows of the search hold one class only"
        _, stop = maximise(subset.bound(bound.model, bound.effort), median)
        return climb(bound), stop
    except TrainingError as error:
        return math.nan, str(error)


def _better_of_fallback(bound: Bound, elbo: float, median: float) -> tuple[float, bool]:
    """Refit at fixed hyper-parameters; keep whichever bound is higher, and say whether it is the new one."""
    searched = _state(bound.model)
    bound.model.reset_posterior()
    bound.model.set_log_hyperparameters(
        math.log(FALLBACK_LENGTHSCALE * median), math.log(FALLBACK_OUTPUTSCALE)
    )
    fixed = climb(bound)
    if fixed <= elbo:
        bound.model.load_state_dict(searched)
        return elbo, False
    return fixed, True


def _state(model: SparseGP) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}
