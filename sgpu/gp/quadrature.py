"""Gauss-Hermite quadrature: moments of the sigmoid of a Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import expit

PREDICTION_POINTS = 32


class Moments(NamedTuple):
    """Mean and standard deviation of s(f), both (M,), s the logistic function."""

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]


def standard_normal_rule(points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes x and weights w, both (points,): sum(w * g(x)) is about E[g(z)] for z ~ N(0, 1)."""
    nodes, weights = hermegauss(points)
    return nodes, weights / weights.sum()


def sigmoid_moments(
    mean: NDArray[np.float64], variance: NDArray[np.float64], points: int = PREDICTION_POINTS
) -> Moments:
    """Moments of s(f) for f ~ N(mean, variance), mean and variance (M,); variance 0 is allowed.

    The sd is that of the probability itself: not that of the label, sqrt(p (1 - p)), and not that of f.
    """
    nodes, weights = standard_normal_rule(points)
    values = expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    probability = values @ weights
    # Centred before squaring: E[s^2] - p^2 would cancel where the latent function is almost known.
    spread = (values - probability[:, None]) ** 2 @ weights
    return Moments(probability, np.sqrt(spread))
