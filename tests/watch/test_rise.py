"""The rise of a share against Fisher's exact test."""

from __future__ import annotations

import pytest
from scipy.stats import fisher_exact

from sgpu.watch.rise import compare_shares


@pytest.mark.parametrize("table", [(30, 200, 40, 800), (0, 200, 5, 300), (12, 12, 1, 30), (5, 100, 5, 100)])
def test_it_is_fishers_one_sided_test(table: tuple[int, int, int, int]) -> None:
    part, rows, before, rows_before = table
    found = compare_shares(*table)
    expected = fisher_exact([[part, rows - part], [before, rows_before - before]], alternative="greater")
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.effect == pytest.approx(part / rows - before / rows_before)


def test_a_fall_is_no_rise() -> None:
    found = compare_shares(5, 1000, 300, 1000)
    assert found.effect < 0 and found.p > 0.999
