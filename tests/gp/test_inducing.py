"""Inducing points and the starting scale, with coinciding rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from bench.constructed import class_names
from sgpu.gp.inducing import inducing_points, median_distance


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
