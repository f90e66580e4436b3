"""Moments of the sigmoid of a Gaussian, against adaptive integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from sgpu.gp.quadrature import sigmoid_moments, standard_normal_rule


@pytest.mark.parametrize("mean", [-3.0, 0.0, 0.7, 5.0])
@pytest.mark.parametrize("sd", [0.05, 1.0, 2.0])
def test_moments_equal_adaptive_integration(mean: float, sd: float) -> None:
    def integral(power: int) -> float:
        weighted = lambda z: expit(mean + sd * z) ** power * norm.pdf(z)  # noqa: E731
        return float(quad(weighted, -12, 12, epsabs=1e-13, limit=200)[0])

    moments = sigmoid_moments(np.array([mean]), np.array([sd**2]))
    assert moments.mean[0] == pytest.approx(integral(1), abs=1e-7)
    assert moments.sd[0] == pytest.approx(np.sqrt(integral(2) - integral(1) ** 2), abs=5e-6)


def test_a_known_latent_value_has_no_spread() -> None:
    moments = sigmoid_moments(np.array([-2.0, 30.0]), np.zeros(2))
    assert moments.mean == pytest.approx(expit([-2.0, 30.0]), abs=1e-15)
    assert moments.sd.max() < 1e-15


def test_sd_is_not_that_of_the_label() -> None:
    moments = sigmoid_moments(np.array([0.0]), np.array([0.01]))
    assert moments.mean[0] == pytest.approx(0.5, abs=1e-12)
    # s'(0) * sd_f = 0.25 * 0.1, where the label's own sd would be 0.5.
    assert moments.sd[0] == pytest.approx(0.025, rel=0.01)


def test_the_rule_integrates_even_moments_of_a_normal_exactly() -> None:
    nodes, weights = standard_normal_rule(20)
    assert [float(weights @ nodes**k) for k in (0, 1, 2, 4, 6)] == pytest.approx([1, 0, 1, 3, 15], abs=1e-9)
