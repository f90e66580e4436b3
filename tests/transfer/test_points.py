from __future__ import annotations

import numpy as np
import pytest

from sgpu.evaluation.calibration import ece
from sgpu.evaluation.ranking import auroc
from sgpu.transfer.measure import Point, points
from tests.evaluation.resampling import bootstrap, paired_bootstrap

RNG = np.random.default_rng(0)
LABEL = RNG.integers(0, 2, 80).astype(np.float64)
FORECASTS = [np.clip(0.5 + 0.3 * (LABEL - 0.5) + RNG.normal(0, 0.2, 80), 0, 1) for _ in range(3)]


def found(**by_size: list[np.ndarray]) -> dict[tuple[int, str], Point]:
    sizes = {int(name[1:]): seeds for name, seeds in by_size.items()}
    made = points(sizes, LABEL, n_resamples=200, seed=4)
    return {(point.size, point.metric): point for point in made}


def test_a_point_is_the_mean_over_its_seeds() -> None:
    point = found(n1=FORECASTS)[1, "ece"]
    assert point.value == pytest.approx(np.mean([ece(p, LABEL) for p in FORECASTS]))
    assert point.seeds == 3


def test_one_seed_has_the_interval_of_the_bootstrap() -> None:
    point = found(n1=FORECASTS[:1])[1, "auroc"]
    expected = bootstrap({"m": FORECASTS[0]}, LABEL, n_resamples=200, seed=4)["m"]["auroc"]
    assert (point.value, point.lo, point.hi) == pytest.approx(expected[:3])


def test_differences_are_paired_and_to_the_first_size() -> None:
    made = found(n0=FORECASTS[:1], n9=FORECASTS[1:2])
    pair = (FORECASTS[1], FORECASTS[0])
    expected = paired_bootstrap(*pair, LABEL, probability=pair, n_resamples=200, seed=4)["ece"]
    point = made[9, "ece"]
    assert point.difference == pytest.approx(ece(pair[0], LABEL) - ece(pair[1], LABEL))
    measured = (point.difference, point.difference_lo, point.difference_hi, point.difference_p)
    assert measured == pytest.approx(expected[:4])
    assert made[0, "ece"].difference == 0 and made[0, "ece"].difference_p is None


def test_one_class_has_no_auroc_but_a_calibration_error() -> None:
    made = points({1: [FORECASTS[0]]}, np.ones(80), n_resamples=100, seed=0)
    by_metric = {point.metric: point for point in made}
    assert by_metric["auroc"].value is None and by_metric["ece"].value is not None
    assert auroc(FORECASTS[0], LABEL) > 0.5
