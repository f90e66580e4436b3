"""The covariance functions: isotropic, with a fitted amplitude, both hyper-parameters on a log scale."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgpu.registry import Registry

if TYPE_CHECKING:
    import gpytorch
    from gpytorch.constraints import Positive

# Read with a study, where GPyTorch is not needed: it is imported when a kernel is made.
KERNELS = Registry(
    "kernel", {name: f"sgpu.gp.kernels:{name}" for name in ("matern05", "matern15", "matern25", "rbf")}
)


def scaled_kernel(name: str) -> gpytorch.kernels.ScaleKernel:
    """outputscale * k(|x - x'| / lengthscale), Rasmussen and Williams (2006) eq. 4.14 and 4.9.

    The raw parameters are the logarithms, so that a gradient with respect to them is one per log-unit.
    Raises UsageError for a name that is not in KERNELS.
    """
    import gpytorch

    return gpytorch.kernels.ScaleKernel(KERNELS.get(name)(), outputscale_constraint=_log_scale())


def rbf() -> gpytorch.kernels.RBFKernel:
    """The squared exponential, the limit of the Matern family."""
    import gpytorch

    return gpytorch.kernels.RBFKernel(lengthscale_constraint=_log_scale())


def _matern(nu: float) -> gpytorch.kernels.MaternKernel:
    import gpytorch

    return gpytorch.kernels.MaternKernel(nu=nu, lengthscale_constraint=_log_scale())


matern05, matern15, matern25 = (partial(_matern, nu) for nu in (0.5, 1.5, 2.5))


def _log_scale() -> Positive:
    import torch
    from gpytorch.constraints import Positive

    return Positive(transform=torch.exp, inv_transform=torch.log)
