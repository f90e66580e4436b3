"""The search of hyper-parameters, and where inducing points lie."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from bench.constructed import class_names, constructed_spectra
from sgpu.gp.fitting import PRIOR_MEAN, _negative_bound, inducing_points, maximise, median_distance
from sgpu.gp.inference import Bound, Effort, SparseGP


def bound_of(seed: int, rows: int = 200) -> tuple[Bound, float]:
    data = constructed_spectra(rows, seed=seed)
    x = data.spectra.clip(min=0)
    model = SparseGP("matern15", torch.as_tensor(inducing_points(x, 64, 0)))
    return Bound(model, torch.as_tensor(x), torch.as_tensor(data.label), Effort()), median_distance(x, 0)


def test_the_gradient_is_that_of_the_profiled_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far past the usual stop, so that finite differences see the bound and not where the climb ended.
    monkeypatch.setattr("sgpu.gp.inference.STOP_NATS", 0.0)
    bound, median = bound_of(seed=1)
    point = np.array([math.log(4 * median), math.log(2.0)])
    _, gradient = _negative_bound(bound, point)
    for i, step in enumerate(np.eye(2) * 0.05):
        slope = (_negative_bound(bound, point + step)[0] - _negative_bound(bound, point - step)[0]) / 0.1
        assert gradient[i] == pytest.approx(slope, abs=2e-5)
        assert abs(gradient[i]) > 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_the_search_leaves_its_start_and_gains(seed: int) -> None:
    bound, median = bound_of(seed, rows=400)
    start = PRIOR_MEAN[:2] + np.array([math.log(median), 0.0])
    elbo, _ = maximise(bound, median)
    found = np.array([p.item() for p in bound.model.log_hyperparameters])
    assert np.abs(found - start).max() > 0.01
    at_start, _ = bound_of(seed, rows=400)
    assert elbo > -_negative_bound(at_start, start)[0]


def test_the_search_comes_back_from_beyond_the_wall() -> None:
    # A median distance a million times too large starts the search where the kernel is constant.
    bound, median = bound_of(seed=0)
    maximise(bound, median * 1e6)
    lengthscale, outputscale = (p.item() for p in bound.model.log_hyperparameters)
    assert math.log(median * 1e6) - 4.01 <= lengthscale <= math.log(median * 1e6) + 5.01
    assert math.log(0.05) - 0.01 <= outputscale <= math.log(1e3) + 0.01


def test_median_distance_of_few_rows_is_exact() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    assert median_distance(x, seed=0) == pytest.approx(np.median(pdist(x)))


def test_median_distance_leaves_out_coinciding_rows() -> None:
    # 9 of 10 rows coincide: most distances are 0, the others are 5.
    x = np.zeros((10, 2))
    x[0] = 3.0, 4.0
    assert median_distance(x, seed=0) == 5.0


def test_median_distance_of_equal_rows_is_one() -> None:
    assert median_distance(np.ones((10, 3)), seed=0) == 1.0


def test_few_distinct_rows_are_the_inducing_points() -> None:
    x = np.repeat(np.eye(3), 100, axis=0)
    assert sorted(inducing_points(x, 128, seed=0).tolist()) == sorted(np.eye(3).tolist())


def test_inducing_points_of_a_data_set_with_many_equal_rows_are_distinct() -> None:
    x = class_names(1000, seed=1).spectra.clip(min=0)
    assert len(np.unique(x.round(4), axis=0)) < 750
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # k-means warns when centres coincide
        points = inducing_points(x, 128, seed=0)
    assert 120 <= len(points) <= 128
    assert pdist(points).min() > 1e-6
