"""The expected log-likelihood, against adaptive integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from scipy.integrate import quad
from scipy.special import log_expit
from scipy.stats import norm

from sgpu.gp.likelihood import LogisticBernoulli


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 4.0), (-2.5, 1.0), (1.0, 0.01)])
def test_expected_log_prob_equals_adaptive_integration(mean: float, variance: float) -> None:
    latent = MultivariateNormal(
        torch.full((2,), mean, dtype=torch.float64), variance * torch.eye(2, dtype=torch.float64)
    )
    ours = LogisticBernoulli().expected_log_prob(torch.tensor([0.0, 1.0], dtype=torch.float64), latent)
    for value, sign in zip(ours.tolist(), (-1, 1), strict=True):
        weighted = lambda z, s=sign: log_expit(s * (mean + np.sqrt(variance) * z)) * norm.pdf(z)  # noqa: E731
        assert value == pytest.approx(quad(weighted, -12, 12)[0], abs=5e-6)
