"""One fit from rows to a converged model: inducing points, hyper-parameters, q(u), and a check of them."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import pdist
from scipy.special import betaln

from sgpu.errors import TrainingError
from sgpu.gp.inference import LENGTHSCALE, OTHER, OUTPUTSCALE, Bound, Effort, SparseGP, climb
from sgpu.gp.pooling import Floats, count_weighted_rows, draw_rows, effective_rows, search_rows

# Raised when the same rows and settings would give another fit, so that kept fits are not taken for new ones.
RECIPE = 2
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Worse than guessing (-log 2 = -0.693) by more than a converged fit can be.
LOWEST_BOUND = -0.75
# Used where the search fails: as good as searching below 300 rows. Lengthscale is in median distances.
FALLBACK_LENGTHSCALE, FALLBACK_OUTPUTSCALE = 2.0, 4.0


@dataclass(frozen=True)
class GPSettings:
    """How to fit; see `sgpu.gp.GPClassifier` for the meaning of each."""

    kernel: str
    inducing: int
    dtype: str
    seed: int
    hyper_rows: int
    spectra: bool = True


@dataclass(frozen=True)
class FitReport:
    """What a fit did.

    ``elbo`` is the evidence bound in nats per row, ``constant_evidence`` that of a classifier that only
    knows the rate; a fit that is not above it (``beats_constant`` False) found nothing in the spectra.
    ``fallback`` says that fixed hyper-parameters were better than those searched for. A ``degenerate``
    fit (one class only) has no Gaussian process, and None for all that belongs to one. ``effective_rows``
    is Kish's number of rows where they were weighted. ``lengthscale`` is None where a kernel has several
    parameters. ``rows_sha256`` is `TrainingRows.sha256` of what was fitted. ``seconds`` is wall time and is
    not saved, so that equal fits give equal files.
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
    rows_sha256: str | None = None

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

    @property
    def sha256(self) -> str:
        """Return a hash of all numbers; cells count by which rows they put together."""
        cells = None if self.cells is None else np.unique(self.cells, return_inverse=True)[1]
        digest = hashlib.sha256(repr(self.x.shape).encode())
        for part in (self.x, self.y, self.weights, cells):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def bound(self, model: SparseGP, effort: Effort) -> Bound:
        """The evidence of a model over these rows."""
        weights = None if self.weights is None else torch.as_tensor(self.weights)
        return Bound(model, torch.as_tensor(self.x), torch.as_tensor(self.y), effort, weights)


def constant_report(rows: TrainingRows, stop: str) -> FitReport:
    """Return the report of a rate without a Gaussian process, with its evidence under a uniform prior."""
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    total, ones = float(weights.sum()), float(weights @ rows.y)
    evidence = float(betaln(ones + 1, total - ones + 1)) / total
    kish = None if rows.weights is None else effective_rows(weights)
    report = FitReport(len(rows), int(rows.y.sum()), rows.x.shape[1], True, evidence, stop)
    return replace(report, effective_rows=kish, rows_sha256=rows.sha256)


def fit_sparse_gp(
    rows: TrainingRows, settings: GPSettings, device: str = "cpu"
) -> tuple[SparseGP, FitReport]:
    """Fit rows with both classes. Raises TrainingError if even fixed hyper-parameters fail."""
    start = time.perf_counter()
    median = median_distance(rows.x, settings.seed, rows.weights)
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
    isotropic = model.roles == [LENGTHSCALE, OUTPUTSCALE]
    outputscale = model.log_hyperparameters[-1].detach().exp().item()
    report = replace(
        base,
        degenerate=False,
        elbo=elbo,
        lengthscale=model.log_hyperparameters[0].detach().exp().item() if isotropic else None,
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


def _search(bound: Bound, rows: TrainingRows, settings: GPSettings, median: float) -> tuple[float, str]:
    """The bound at the best hyper-parameters and why their search stopped; NaN where it failed.

    Above ``hyper_rows`` they are searched on a seeded subset, and q(u) alone is refitted to all rows.
    """
    try:
        if (
            count_weighted_rows(len(rows), rows.weights if rows.cells is None else None)
            <= settings.hyper_rows
        ):
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
    searched = {name: value.clone() for name, value in bound.model.state_dict().items()}
    bound.model.reset_posterior()
    fixed_values = {
        LENGTHSCALE: math.log(FALLBACK_LENGTHSCALE * median), OUTPUTSCALE: math.log(FALLBACK_OUTPUTSCALE)
    }  # fmt: skip
    first = zip(bound.model.roles, bound.model.initial.tolist(), strict=True)
    bound.model.set_log_hyperparameters(*(fixed_values.get(role, value) for role, value in first))
    fixed = climb(bound)
    if fixed <= elbo:
        bound.model.load_state_dict(searched)
        return elbo, False
    return fixed, True


# MAP prior on (log lengthscale / median distance, log outputscale, any other relative to the value that its
# kernel was made with): it decides below about 300 rows, where the likelihood hardly does, and is invisible
# above 1000. Priors that a kernel has itself are added.
ROLES = (LENGTHSCALE, OUTPUTSCALE, OTHER)
PRIOR_MEAN = np.array([math.log(3.0), math.log(4.0), 0.0])
PRIOR_SD = np.array([0.7, 1.0, 1.0])
# Where the search turns back: log lengthscale relative to the log median distance, log outputscale, others.
LOWEST = np.array([-4.0, math.log(0.05), -4.0])
HIGHEST = np.array([5.0, math.log(1e3), 5.0])
WALL = 5.0
MAX_ITERATIONS = 40
# In nats of the whole bound; SciPy gets them per row.
STOP_CHANGE_NATS = 0.02
STOP_GRADIENT_NATS = 0.1


def maximise(bound: Bound, median: float) -> tuple[float, str]:
    """Set the model of ``bound`` to its best hyper-parameters and q(u).

    Returns the bound per row there (without the prior) and why the search stopped.

    q(u) is climbed to its top at every trial, so that by the envelope theorem the gradient of the profile
    is the partial derivative there. Raises TrainingError if the bound cannot be computed.
    """
    roles = [ROLES.index(role) for role in bound.model.roles]
    origin = np.where(np.equal(roles, 0), math.log(median), bound.model.initial)
    mean, sd = PRIOR_MEAN[roles], PRIOR_SD[roles]
    lowest, highest = origin + LOWEST[roles], origin + HIGHEST[roles]

    def objective(trial: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = np.clip(trial, lowest, highest)
        beyond = trial - point
        value, gradient = _negative_bound(bound, point)
        off = (point - origin - mean) / sd
        own, slopes = _own_priors(bound.model)
        value += (0.5 * off @ off - own) / bound.rows + WALL * (beyond @ beyond)
        gradient += (off / sd - slopes) / bound.rows
        return value, np.where(beyond != 0, 2 * WALL * beyond, gradient)

    # No bounds=: with every variable boxed, SciPy's first step is the bare gradient, here about 1e-3, and
    # the search would end where it began. The wall above does the work of the box.
    optimum = minimize(
        objective,
        origin + mean,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": MAX_ITERATIONS,
            "ftol": STOP_CHANGE_NATS / bound.rows,
            "gtol": STOP_GRADIENT_NATS / bound.rows,
        },
    )
    # The last trial need not be the best one: leave the model at the best.
    value, _ = _negative_bound(bound, np.clip(optimum.x, lowest, highest))
    return -value, str(optimum.message)


def _negative_bound(bound: Bound, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    bound.effort.evaluations += 1
    bound.model.set_log_hyperparameters(*point.tolist())
    climb(bound)
    parameters = bound.model.log_hyperparameters
    value = bound.evaluate(parameters)
    slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    gradient = torch.cat([slope.flatten() for slope in slopes]).double().cpu().numpy()
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        raise TrainingError(f"the evidence bound or its slope is not finite at log hyper-parameters {point}")
    return -value, gradient


def _own_priors(model: SparseGP) -> tuple[float, NDArray[np.float64]]:
    """Log density of the priors that the kernel itself has, and its slopes (H,), where the search stands."""
    priors = [
        prior.log_prob(value_of(module)).sum()
        for _, module, prior, value_of, _ in model.covar_module.named_priors()
    ]
    parameters = model.log_hyperparameters
    if not priors:
        return 0.0, np.zeros(len(model.roles))
    density = torch.stack(priors).sum()
    slopes = torch.autograd.grad(density, parameters, allow_unused=True, materialize_grads=True)
    return density.item(), torch.cat([slope.flatten() for slope in slopes]).double().cpu().numpy()


DISTANCE_ROWS = 500
CLUSTER_ROWS = 10_000
# Closer rows are the same response set up to the rounding of the encoder.
SAME_ROW = 1e-3
ROW_DECIMALS, CENTRE_DECIMALS = 4, 6


def median_distance(x: NDArray[np.float64], seed: int, weights: NDArray[np.float64] | None = None) -> float:
    """Return the median distance between different rows of x (M, N), over at most 500; 1 if all are the same.

    Leaves out coinciding rows (all answers alike): in easy data sets they are so many that the median would
    be 0. Two rows count as often as there would be pairs of them if each stood there ``weights`` (M,) times.
    """
    chosen, weights = draw_rows(len(x), DISTANCE_ROWS, seed, weights)
    distances = pdist(x[chosen])
    differ = distances >= SAME_ROW
    if not differ.any():
        return 1.0
    if weights is None:
        return float(np.median(distances[differ]))
    first, second = np.triu_indices(len(chosen), 1)
    return _weighted_median(distances[differ], (weights[first] * weights[second])[differ])


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Return the median of values that stand there as often as their weights say."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    middle = [np.searchsorted(below, below[-1] / 2, side) for side in ("left", "right")]
    return float(values[order[middle]].mean())


def inducing_points(
    x: NDArray[np.float64], most: int, seed: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """(m, N) different points with m <= most: the distinct rows of x (M, N), or their k-means centres.

    Rows of more ``weights`` (M,) draw more of the centres. Two inducing points at one place would make the
    kernel matrix singular.
    """
    distinct = np.unique(x.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    chosen, weights = draw_rows(len(x), CLUSTER_ROWS, seed, weights)
    some = x[chosen]
    distinct = np.unique(some.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    from sklearn.cluster import KMeans  # here, as every command would wait for it

    # KMeans stops at a share of the variance, and takes that without the weights.
    spread = 1.0 if weights is None else _variance(some, weights) / _variance(some)
    clusters = KMeans(most, n_init=1, max_iter=20, tol=1e-4 * spread, random_state=seed).fit(
        some, sample_weight=weights
    )
    return np.unique(clusters.cluster_centers_.round(CENTRE_DECIMALS), axis=0)


def _variance(x: Floats, weights: Floats | None = None) -> float:
    """Return the mean of the variances of the columns of x (M, N)."""
    return float(np.average((x - np.average(x, 0, weights)) ** 2, 0, weights).mean())
