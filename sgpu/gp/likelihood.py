"""The logistic likelihood of a binary label."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from sgpu.gp.quadrature import standard_normal_rule

TRAINING_POINTS = 20


class LogisticBernoulli(Likelihood):
    """p(y=1 | f) = 1 / (1 + exp(-f)), the paper's link. GPyTorch's own Bernoulli is probit."""

    def __init__(self) -> None:
        super().__init__()
        # In float64, and cast on use: GPyTorch's own rule is built in the default dtype, float32.
        nodes, weights = standard_normal_rule(TRAINING_POINTS)
        self._nodes, self._weights = torch.from_numpy(nodes), torch.from_numpy(weights)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Bernoulli:
        return torch.distributions.Bernoulli(logits=function_samples)

    def expected_log_prob(
        self, observations: Tensor, function_dist: MultivariateNormal, *args: Any, **kwargs: Any
    ) -> Tensor:
        """E[log p(y | f)] row by row: observations (M,) in {0, 1}, function_dist over M rows -> (M,)."""
        mean, sd = function_dist.mean, function_dist.variance.sqrt()
        nodes, weights = self._nodes.to(mean), self._weights.to(mean)
        sign = 2 * observations - 1
        return F.logsigmoid(sign[:, None] * (mean[:, None] + sd[:, None] * nodes)) @ weights
