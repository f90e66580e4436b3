"""Covariances against scikit-learn's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF, Matern

from sgpu.errors import UsageError
from sgpu.gp.kernels import scaled_kernel

THEIRS = {
    "matern05": Matern(1.7, nu=0.5),
    "matern15": Matern(1.7, nu=1.5),
    "matern25": Matern(1.7, nu=2.5),
    "rbf": RBF(1.7),
}


@pytest.mark.parametrize("name", THEIRS)
def test_values_equal_scikit_learn(name: str) -> None:
    kernel: Any = scaled_kernel(name, 4).double()
    kernel.base_kernel.raw_lengthscale.data.fill_(math.log(1.7))
    kernel.raw_outputscale.data.fill_(math.log(2.5))
    x = np.random.default_rng(0).normal(size=(7, 4))
    ours = kernel(torch.as_tensor(x)).to_dense().detach().numpy()
    assert ours == pytest.approx(2.5 * THEIRS[name](x), abs=1e-6)


def test_trend_and_matern_are_summed() -> None:
    kernel: Any = scaled_kernel("linear_matern15", 2).double()
    x = np.random.default_rng(0).normal(size=(7, 2))
    lengthscale = kernel.base_kernel.kernels[1].lengthscale.item()
    expected = (x @ x.T + 36) / 36 + Matern(lengthscale, nu=1.5)(x)
    ours = kernel(torch.as_tensor(x)).to_dense().detach().numpy()
    assert ours == pytest.approx(kernel.outputscale.item() * expected, abs=1e-6)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"'matern2'.*Known: linear, linear_matern15, matern05, matern15, matern25, rbf"
    ):
        scaled_kernel("matern2", 4)
