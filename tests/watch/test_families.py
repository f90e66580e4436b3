"""Two families of tests that share alpha."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.watch.comparisons import PSI, Comparison
from sgpu.watch.effort import adjusted, families_of
from sgpu.watch.sketch import Key
from sgpu.watch.thresholds import Levels
from sgpu.watch.two_sample_tests import MeasuredDifference


def asked(key: Key | None, possible: bool = True) -> Comparison:
    run = (lambda: MeasuredDifference(0.0, 0.0, 1.0)) if possible else None
    return Comparison(key, PSI, "history", Levels(yellow=0.1, red=0.2), 500, 500, run)


def test_tests_of_all_rows_are_a_family_beside_those_of_single_groups() -> None:
    tests = [asked(None), asked(("m", "a")), asked(None, possible=False), asked(("m", "b")), asked(None)]
    assert families_of(tests) == [[0, 4], [1, 3]]


def test_a_family_without_tests_takes_no_part_of_alpha() -> None:
    tests = [asked(None, possible=False), asked(("m", "a"))]
    assert families_of(tests) == [[1]]
    assert adjusted([1.0, 0.01], families_of(tests))[1] == pytest.approx(0.01)


def test_p_values_are_corrected_by_holm_within_a_family_and_by_the_number_of_families() -> None:
    found = adjusted([0.01, 0.001, 0.5, 0.02, 0.004], [[0, 1], [3, 4]])
    expected = [2 * 0.01, 2 * 0.002, np.nan, 2 * 0.02, 2 * 0.008]
    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_an_adjusted_p_value_is_at_most_one() -> None:
    assert adjusted([0.9, 0.8], [[0], [1]]).tolist() == [1.0, 1.0]
