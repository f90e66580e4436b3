"""Kernels of others: any of GPyTorch's, with any number of hyper-parameters, some fixed, some with priors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.priors import NormalPrior

from bench.constructed import constructed_spectra
from sgpu.errors import IntegrityError
from sgpu.gp import GPClassifier
from sgpu.gp.fitting import _negative_bound, _own_priors, inducing_points, maximise, median_distance
from sgpu.gp.inference import LENGTHSCALE, OTHER, OUTPUTSCALE, Bound, Effort, SparseGP
from sgpu.gp.kernels import KERNELS, scaled_kernel

N = 20  # eigenvalues


def ard(dimensions: int) -> Any:
    """A lengthscale for each eigenvalue."""
    return gpytorch.kernels.RBFKernel(ard_num_dims=dimensions)


def added(dimensions: int) -> Any:
    """A sum of two, with a bounded parameter, one that is held fixed, and a prior."""
    smooth = gpytorch.kernels.RQKernel(lengthscale_prior=NormalPrior(2.0, 0.5))
    smooth.alpha = 2.0
    flat = gpytorch.kernels.PolynomialKernel(power=1, offset_constraint=Interval(0.0, 4.0))
    near = gpytorch.kernels.RBFKernel()
    near.lengthscale = 5.0
    near.raw_lengthscale.requires_grad_(False)
    return smooth + flat * near


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ard", "added"):
        monkeypatch.setitem(KERNELS._entries, name, f"{__name__}:{name}")


def bound_of(kernel: str, rows: int = 120) -> tuple[Bound, float]:
    data = constructed_spectra(rows, seed=1)
    x = data.spectra.clip(min=0)
    model = SparseGP(kernel, torch.as_tensor(inducing_points(x, 32, 0)))
    return Bound(model, torch.as_tensor(x), torch.as_tensor(data.label), Effort()), median_distance(x, 0)


def test_every_free_number_has_a_role_and_fixed_ones_have_none() -> None:
    points = torch.zeros((4, N), dtype=torch.float64)
    assert SparseGP("ard", points).roles == [LENGTHSCALE] * N + [OUTPUTSCALE]
    # alpha and lengthscale of the one, the offset of the other, in GPyTorch's order.
    assert sorted(SparseGP("added", points).roles) == sorted([LENGTHSCALE, OTHER, OTHER, OUTPUTSCALE])


def test_a_positive_parameter_is_on_a_log_scale_at_the_value_it_had() -> None:
    smooth = scaled_kernel("added", N).base_kernel.kernels[0]
    assert smooth.raw_alpha.item() == pytest.approx(math.log(2.0))
    assert smooth.alpha.item() == pytest.approx(2.0)


def test_the_gradient_is_that_of_the_bound_and_the_priors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sgpu.gp.inference.STOP_NATS", 0.0)
    bound, median = bound_of("added")
    point = np.where(np.equal(bound.model.roles, LENGTHSCALE), math.log(median), bound.model.initial)

    def value(at: np.ndarray[Any, Any]) -> float:
        loss, _ = _negative_bound(bound, at)
        return loss - _own_priors(bound.model)[0] / bound.rows

    _, gradient = _negative_bound(bound, point)
    gradient = gradient - _own_priors(bound.model)[1] / bound.rows
    for i, step in enumerate(np.eye(len(point)) * 0.02):
        slope = (value(point + step) - value(point - step)) / 0.04
        assert gradient[i] == pytest.approx(slope, abs=1e-4)


def test_a_prior_of_the_kernel_decides_where_rows_do_not() -> None:
    bound, median = bound_of("added", rows=40)
    maximise(bound, median)
    searched = bound.model.covar_module.base_kernel.kernels[0].lengthscale.item()
    assert abs(searched - 2.0) < 1.5 < abs(3 * median - 2.0)


@pytest.mark.parametrize("kernel", ["ard", "added"])
def test_a_fit_is_saved_and_predicts_bitwise_the_same(kernel: str, tmp_path: Path) -> None:
    data = constructed_spectra(150, seed=2)
    fitted = GPClassifier(kernel, inducing=24).fit(data.spectra, data.label)
    assert fitted.fit_report.beats_constant and fitted.fit_report.lengthscale is None
    fitted.save(tmp_path)
    again = GPClassifier.load(tmp_path).predict(data.spectra)
    assert np.array_equal(again.probability, fitted.predict(data.spectra).probability)


def test_numbers_of_another_kernel_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = constructed_spectra(60, seed=2)
    GPClassifier("ard", inducing=8).fit(data.spectra, data.label).save(tmp_path)
    monkeypatch.setitem(KERNELS._entries, "ard", KERNELS._entries["added"])
    with pytest.raises(IntegrityError, match="does not describe a fit"):
        GPClassifier.load(tmp_path)
