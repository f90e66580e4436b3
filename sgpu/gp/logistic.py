"""The logistic link: moments of a probability whose logit is Gaussian, and recalibration on new labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, xlog1py, xlogy

Floats = NDArray[np.float64]
PREDICTION_POINTS = 32
SLOPE_SD, OFFSET_SD = 0.5, 1.5  # of the prior of a recalibration, around 1 and 0
TINY = 1e-12  # a probability of exactly 0 or 1 has no logarithm


class Moments(NamedTuple):
    """Mean and standard deviation of s(f), both (M,), s the logistic function."""

    mean: Floats
    sd: Floats


def standard_normal_rule(points: int) -> tuple[Floats, Floats]:
    """Return nodes x and weights w, both (points,): sum(w * g(x)) is about E[g(z)] for z ~ N(0, 1)."""
    nodes, weights = hermegauss(points)
    return nodes, weights / weights.sum()


def sigmoid_moments(mean: Floats, variance: Floats, points: int = PREDICTION_POINTS) -> Moments:
    """Return the moments of s(f) for f ~ N(mean, variance), mean and variance (M,); variance 0 is allowed.

    The sd is that of the probability itself: not that of the label, sqrt(p (1 - p)), and not that of f.
    """
    nodes, weights = standard_normal_rule(points)
    values = expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    probability = values @ weights
    # Centred before squaring: E[s^2] - p^2 would cancel where the latent function is almost known.
    spread = (values - probability[:, None]) ** 2 @ weights
    return Moments(probability, np.sqrt(spread))


class Recalibration(NamedTuple):
    """A line for the latent function, f -> slope * f + offset, fitted to so many ``labels``.

    A classifier that was trained on other data ranks well there more often than it is calibrated there; two
    numbers are what a few dozen labels can tell.
    """

    slope: float = 1.0
    offset: float = 0.0
    labels: int = 0

    def apply(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return the moments (M,) of the recalibrated latent function."""
        return self.slope * mean + self.offset, self.slope**2 * variance

    @classmethod
    def fit(cls, mean: Floats, variance: Floats, label: Floats) -> Recalibration:
        """Return the most probable line given labels (M,), with slope ~ N(1, 0.5) and offset ~ N(0, 1.5).

        Between the line of the prior and that of Platt (1999), which has no prior and needs more labels. The
        slope is at least 0: labels that contradict the ranking make all probabilities alike, not inverse.
        """

        def loss(point: Floats) -> float:
            p = sigmoid_moments(*cls(*point).apply(mean, variance)).mean.clip(TINY, 1 - TINY)
            prior = ((point[0] - 1) / SLOPE_SD) ** 2 / 2 + (point[1] / OFFSET_SD) ** 2 / 2
            return float(prior - np.sum(xlogy(label, p) + xlog1py(1 - label, -p)))

        bounds = [(0.0, None), (None, None)]
        slope, offset = minimize(loss, [1.0, 0.0], method="L-BFGS-B", bounds=bounds).x
        return cls(float(slope), float(offset), len(label))
