"""Moments of a probability against quadrature, and recalibration against scikit-learn and the prior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from sgpu.gp.logistic import Recalibration, sigmoid_moments, standard_normal_rule


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


def drawn(m: int, slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Return latent means (m,) and labels that follow a line of them."""
    draw = np.random.default_rng(0)
    mean = draw.normal(0, 2, m)
    return mean, (draw.uniform(size=m) < expit(slope * mean + offset)).astype(float)


def test_many_labels_give_the_line_of_a_logistic_regression() -> None:
    mean, label = drawn(4000, 0.6, -1.5)
    found = Recalibration.fit(mean, np.zeros(len(mean)), label)
    expected = LogisticRegression(C=np.inf).fit(mean[:, None], label)
    assert found.slope == pytest.approx(expected.coef_[0, 0], abs=0.01)
    assert found.offset == pytest.approx(expected.intercept_[0], abs=0.01)
    assert found.labels == 4000


def test_no_label_leaves_the_classifier_as_it_is() -> None:
    assert Recalibration.fit(*np.empty((3, 0))) == pytest.approx((1, 0, 0), abs=1e-4)


def test_labels_that_contradict_the_ranking_do_not_invert_it() -> None:
    mean, label = drawn(500, -2.0, 0.0)
    assert Recalibration.fit(mean, np.zeros(500), label).slope == pytest.approx(0, abs=0.01)


def test_an_uncertain_latent_function_is_fitted_with_its_spread() -> None:
    mean, label = drawn(3000, 1.0, 0.0)
    found = Recalibration.fit(mean, np.full(len(mean), 0.5), label)
    # E[s(f)] is about s(m / sqrt(1 + pi v / 8)), so a slope a with a / sqrt(1 + pi a^2 v / 8) = 1.
    assert found.slope == pytest.approx(1.115, abs=0.06)
