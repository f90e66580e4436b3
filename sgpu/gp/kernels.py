"""The covariance functions: isotropic, with a fitted amplitude, both hyper-parameters on a log scale."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Positive

from sgpu.errors import UsageError
from sgpu.registry import unknown_name

# Smoothness of the Matern family; None is its limit, the squared exponential.
SMOOTHNESS: dict[str, float | None] = {"matern05": 0.5, "matern15": 1.5, "matern25": 2.5, "rbf": None}


def scaled_kernel(name: str) -> gpytorch.kernels.ScaleKernel:
    """outputscale * k(|x - x'| / lengthscale), Rasmussen and Williams (2006) eq. 4.14 and 4.9.

    The raw parameters are the logarithms, so that a gradient with respect to them is one per log-unit.
    Raises UsageError for a name that is not in SMOOTHNESS.
    """
    if name not in SMOOTHNESS:
        raise UsageError(unknown_name("kernel", name, sorted(SMOOTHNESS)))
    nu = SMOOTHNESS[name]
    if nu is None:
        base = gpytorch.kernels.RBFKernel(lengthscale_constraint=_log_scale())
    else:
        base = gpytorch.kernels.MaternKernel(nu=nu, lengthscale_constraint=_log_scale())
    return gpytorch.kernels.ScaleKernel(base, outputscale_constraint=_log_scale())


def _log_scale() -> Positive:
    return Positive(transform=torch.exp, inv_transform=torch.log)
