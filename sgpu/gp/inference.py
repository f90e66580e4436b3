"""Sparse variational inference at fixed hyper-parameters: the model, its bound, and the climb to its top.

Whitened inducing variables (Matthews 2017), logistic likelihood, and q(u) by full-batch natural-gradient
steps of length 1 (Hensman et al. 2015; Salimbeni et al. 2018). Without backtracking, steps of that
length diverge silently in about one fit of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ApproximateGP
from gpytorch.optim import NGD
from gpytorch.variational import NaturalVariationalDistribution, VariationalStrategy
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.nn import Parameter

from sgpu.errors import TrainingError
from sgpu.gp.kernels import scaled_kernel
from sgpu.gp.logistic import standard_normal_rule

CHUNK_ROWS = 8192
# A GPU is kept busy by as many more; of 256 inducing points in float64 such a chunk takes some 300 MB.
CUDA_CHUNKS = 16
MAX_STEPS = 30
# The climb ends when the whole bound, not the bound per row, rises by less than this.
STOP_NATS = 0.01
MAX_STOP_NATS_PER_ROW = 1e-4
SHORTEST_STEP = 1e-3
# A short step gains little wherever it starts, so its small gain says nothing about the top.
SHORTEST_STOPPING_STEP = 0.25
# What a hyper-parameter is to the search: GPyTorch's names of the first two.
LENGTHSCALE, OUTPUTSCALE, OTHER = "raw_lengthscale", "raw_outputscale", "other"


class SparseGP(ApproximateGP):
    """Zero-mean GP with inducing points (m, N) and a Gaussian q(u), which starts as the prior."""

    def __init__(self, kernel: str, inducing_points: Tensor) -> None:
        posterior = NaturalVariationalDistribution(len(inducing_points), mean_init_std=0.0)
        super().__init__(
            VariationalStrategy(self, inducing_points, posterior, learn_inducing_locations=False)
        )
        self.mean_module = ZeroMean()
        self.covar_module = scaled_kernel(kernel, inducing_points.shape[1])
        # Those that the kernel itself holds fixed are not searched; which ones are is noted before any climb.
        searched = [name for name, p in self.covar_module.base_kernel.named_parameters() if p.requires_grad]
        self._searched = [*(f"base_kernel.{name}" for name in searched), OUTPUTSCALE]
        self.initial = torch.cat([p.detach().flatten() for p in self.log_hyperparameters]).double().numpy()
        # q(u) is the whitened prior already; GPyTorch's first call would draw from the global generator.
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.to(inducing_points)

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    @property
    def log_hyperparameters(self) -> list[Parameter]:
        """The kernel's own, then log outputscale; of our kernels [log lengthscale, log outputscale]."""
        return [self.covar_module.get_parameter(name) for name in self._searched]

    @property
    def roles(self) -> list[str]:
        """LENGTHSCALE, OUTPUTSCALE or OTHER for each number of the hyper-parameters, H in all."""
        named = zip(self._searched, self.log_hyperparameters, strict=True)
        return [role for name, p in named for role in [self._role(name)] * p.numel()]

    def _role(self, name: str) -> str:
        if name == OUTPUTSCALE:
            return OUTPUTSCALE
        constraint = self.covar_module.constraint_for_parameter_name(name)
        is_log = constraint is not None and constraint._transform is torch.exp
        return LENGTHSCALE if is_log and name.endswith(LENGTHSCALE) else OTHER

    def set_log_hyperparameters(self, *values: float) -> None:
        """Set all H numbers; RuntimeError for another number of them."""
        parameters = self.log_hyperparameters
        parts = torch.tensor(values, dtype=torch.float64).split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data.copy_(part.reshape(parameter.shape))

    def reset_posterior(self) -> None:
        """Put q(u) back to the prior."""
        vector, matrix = self.variational_parameters()
        vector.data.zero_()
        matrix.data.copy_(-0.5 * torch.eye(len(matrix), dtype=matrix.dtype))


@dataclass
class Effort:
    """What a fit has cost: hyper-parameter evaluations, passes over the rows, rejected steps."""

    evaluations: int = 0
    passes: int = 0
    rejects: int = 0


class Bound:
    """The evidence lower bound per row (ELBO) of a model over fixed rows x (M, N), y (M,) in {0, 1}.

    A row of weight w counts as w equal rows; ``rows`` is the sum of the ``weights`` (M,), by default M.
    """

    def __init__(
        self, model: SparseGP, x: Tensor, y: Tensor, effort: Effort, weights: Tensor | None = None
    ) -> None:
        self.model = model.train()
        self.rows = len(y) if weights is None else weights.sum().item()
        self.effort = effort
        points = model.variational_strategy.inducing_points
        self._x, self._y = x.to(points), y.to(points)
        self._weights = None if weights is None else weights.to(points)
        self._likelihood = LogisticBernoulli()

    @property
    def natural(self) -> list[Parameter]:
        """The natural parameters of q(u)."""
        return list(self.model.variational_parameters())

    def evaluate(self, wanted: Sequence[Parameter]) -> float:
        """The bound per row; leaves the gradient of its negative in ``wanted``. NaN if it cannot be computed.

        Gradients are summed over chunks, so that memory does not grow with M and nothing is random.
        """
        for parameter in self.model.parameters():
            parameter.requires_grad_(any(parameter is w for w in wanted))
            parameter.grad = None
        self.effort.passes += 1
        total = 0.0
        size = CHUNK_ROWS * (CUDA_CHUNKS if self._x.is_cuda else 1)
        try:
            for start in range(0, len(self._y), size):
                rows = slice(start, start + size)
                each = self._likelihood.expected_log_prob(self._y[rows], self.model(self._x[rows]))
                part = each.sum() if self._weights is None else each @ self._weights[rows]
                if start == 0:
                    # It shares the graph of q(u) with the first chunk, which backward() frees.
                    part = part - self.model.variational_strategy.kl_divergence()
                (-part / self.rows).backward()
                total += part.item() / self.rows
        except (NanError, NotPSDError):
            return math.nan
        return total


def climb(bound: Bound) -> float:
    """Raise the bound over q(u) to its top, from where q(u) is; return the bound per row.

    A step that lowers the bound is halved towards the last good q(u). Raises TrainingError if the bound
    is not finite where the climb begins.
    """
    natural = bound.natural
    double = natural[0].dtype == torch.float64
    slack = 1e-7 if double else 2e-6
    enough = min(MAX_STOP_NATS_PER_ROW, max(STOP_NATS / bound.rows, 2e-7 if double else 2e-6))
    optimizer = NGD(natural, num_data=bound.rows, lr=1.0)
    best, step = -math.inf, 1.0
    good = goal = _values(natural)
    for _ in range(MAX_STEPS):
        value = bound.evaluate(natural)
        if math.isnan(value) and best == -math.inf:
            raise TrainingError("the evidence bound is not finite at the start of a fit")
        if value >= best - slack:
            gain, best, good = value - best, value, _values(natural)
            if gain < enough and step >= SHORTEST_STOPPING_STEP:
                break
            optimizer.step()
            goal, step = _values(natural), min(1.0, 2 * step)
        else:
            bound.effort.rejects += 1
            step /= 2
            if step < SHORTEST_STEP:
                break
        for parameter, low, high in zip(natural, good, goal, strict=True):
            parameter.data.copy_(low + step * (high - low))
    for parameter, value_ in zip(natural, good, strict=True):
        parameter.data.copy_(value_)
    return best


def _values(parameters: Sequence[Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


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
