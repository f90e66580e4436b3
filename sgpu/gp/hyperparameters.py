"""The outer search: lengthscale and outputscale at the top of the bound plus a weak prior."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sgpu.errors import TrainingError
from sgpu.gp.inference import Bound, climb

# MAP prior on (log lengthscale / median distance, log outputscale): it decides below about 300 rows,
# where the likelihood hardly does, and is invisible above 1000.
PRIOR_MEAN = np.array([math.log(3.0), math.log(4.0)])
PRIOR_SD = np.array([0.7, 1.0])
# Where the search turns back: log lengthscale relative to the log median distance, log outputscale.
LOWEST = np.array([-4.0, math.log(0.05)])
HIGHEST = np.array([5.0, math.log(1e3)])
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
    origin = np.array([math.log(median), 0.0])

    def objective(trial: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = np.clip(trial, origin + LOWEST, origin + HIGHEST)
        beyond = trial - point
        value, gradient = _negative_bound(bound, point)
        off = (point - origin - PRIOR_MEAN) / PRIOR_SD
        value += (0.5 * off @ off) / bound.rows + WALL * (beyond @ beyond)
        gradient += off / PRIOR_SD / bound.rows
        return value, np.where(beyond != 0, 2 * WALL * beyond, gradient)

    # No bounds=: with every variable boxed, SciPy's first step is the bare gradient, here about 1e-3, and
    # the search would end where it began. The wall above does the work of the box.
    found = minimize(
        objective,
        origin + PRIOR_MEAN,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": MAX_ITERATIONS,
            "ftol": STOP_CHANGE_NATS / bound.rows,
            "gtol": STOP_GRADIENT_NATS / bound.rows,
        },
    )
    # The last trial need not be the best one: leave the model at the best.
    value, _ = _negative_bound(bound, np.clip(found.x, origin + LOWEST, origin + HIGHEST))
    return -value, str(found.message)


def _negative_bound(bound: Bound, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    bound.effort.evaluations += 1
    bound.model.set_log_hyperparameters(float(point[0]), float(point[1]))
    climb(bound)
    parameters = bound.model.log_hyperparameters
    value = bound.evaluate(parameters)
    gradient = np.array([0.0 if p.grad is None else p.grad.item() for p in parameters])
    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        raise TrainingError(f"the evidence bound or its slope is not finite at log hyper-parameters {point}")
    return -value, gradient
