"""The covariance functions: a kernel by name, with an amplitude, its positive parameters on a log scale."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgpu.registry import Registry

if TYPE_CHECKING:
    import gpytorch
    from gpytorch.constraints import Positive

# Read with a study, where GPyTorch is not needed: it is imported when a kernel is made. A kernel is made by a
# function of the number N of eigenvalues; it has any number of parameters, and no amplitude, which is added.
KERNELS = Registry(
    "kernel",
    {
        name: f"sgpu.gp.kernels:{name}"
        for name in ("matern05", "matern15", "matern25", "rbf", "linear", "linear_matern15")
    },
    group="sgpu.kernels",
)


OFFSET = 36.0  # of a trend at first; columns are on the scale of spectra


def scaled_kernel(name: str, dimensions: int) -> gpytorch.kernels.ScaleKernel:
    """outputscale * k(x, x') of rows of so many ``dimensions``, see `sgpu.gp.fitting` for the search.

    Ours are isotropic, k(|x - x'| / lengthscale), Rasmussen and Williams (2006) eq. 4.14 and 4.9. Parameters
    that only have to be positive are kept as logarithms, so that a gradient with respect to them is one per
    log-unit; others as their constraint has them. Raises UsageError for a name that is not in KERNELS.
    """
    import gpytorch
    from gpytorch.constraints import Positive

    base = KERNELS.get(name)(dimensions)
    for path, parameter, constraint in list(base.named_parameters_and_constraints()):
        if type(constraint) is Positive:
            owner, _, own_name = path.rpartition(".")
            parameter.data.copy_(constraint.transform(parameter.data).log())
            base.get_submodule(owner).register_constraint(own_name, _log_scale())
    return gpytorch.kernels.ScaleKernel(base, outputscale_constraint=_log_scale())


def rbf(dimensions: int) -> gpytorch.kernels.RBFKernel:
    """The squared exponential, the limit of the Matern family."""
    import gpytorch

    return gpytorch.kernels.RBFKernel()


def _matern(nu: float, dimensions: int) -> gpytorch.kernels.MaternKernel:
    import gpytorch

    return gpytorch.kernels.MaternKernel(nu=nu)


matern05, matern15, matern25 = (partial(_matern, nu) for nu in (0.5, 1.5, 2.5))


def linear_matern15(dimensions: int) -> gpytorch.kernels.Kernel:
    """A constant and a linear part beside Matern 3/2: a trend that goes on where the training rows end.

    Made for a few columns on the scale of spectra, 0 to 20; the weights of constant and trend are searched.
    """
    from gpytorch.kernels import ScaleKernel

    trend = ScaleKernel(linear(dimensions))
    trend.outputscale = 1 / OFFSET
    return trend + matern15(dimensions)


def linear(dimensions: int) -> gpytorch.kernels.PolynomialKernel:
    """Return x x' + c: Bayesian logistic regression, which keeps the order of a single column."""
    from gpytorch.kernels import PolynomialKernel

    kernel = PolynomialKernel(power=1)  # a sum with `LinearKernel` is decomposed
    kernel.offset = OFFSET
    return kernel


def _log_scale() -> Positive:
    import torch
    from gpytorch.constraints import Positive

    return Positive(transform=torch.exp, inv_transform=torch.log)
