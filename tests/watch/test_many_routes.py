"""Spectra that moved are seen however many routes there are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sgpu.logs.accounting import Accounting
from sgpu.watch import effort
from sgpu.watch.comparisons import MMD
from sgpu.watch.group import Group, sample_of
from sgpu.watch.sketch import Sketch
from sgpu.watch.thresholds import Thresholds
from sgpu.watch.verdict import Verdict, judge_day


def drawn_group(draw: np.random.Generator, disagreement: float, rows: int) -> Group:
    """Rows of one route whose probabilities are the same on all days; only the spectra differ."""
    shares = -np.sort(-draw.dirichlet(np.full(20, disagreement), rows))
    keys = draw.integers(0, 2**63, rows).astype(np.uint64)
    sample = sample_of(keys, np.full(rows, 0.5), shares)
    return Group(sample, Counter(rows=rows), Counter({25: rows}), Counter(), Counter({20: rows}))


def many_routes(routes: int, moved: int) -> tuple[Sketch, list[Sketch]]:
    """A day of so many routes, of which the spectra of the first ``moved`` are others than before."""
    draw = np.random.default_rng(0)
    keys = [(f"m{number // 32}", f"r{number % 32}") for number in range(routes)]
    before = {key: drawn_group(draw, 0.1, 200) for key in keys}
    today = {key: drawn_group(draw, 1.0 if i < moved else 0.1, 200) for i, key in enumerate(keys)}
    return Sketch(today), [Sketch(before)]


def judged(routes: int, moved: int) -> Verdict:
    today, before = many_routes(routes, moved)
    return judge_day(today, before, None, Accounting(), Thresholds(min_days=1))


def test_one_of_64_routes_that_moved_is_red_and_named() -> None:
    verdict = judged(64, moved=1)
    assert [(f.model, f.route) for f in verdict.findings if f.level == "red"] == [("m0", "r0")]
    assert verdict.level == "red" and {f.measure for f in verdict.findings if f.level == "red"} == {MMD}


def test_64_routes_that_all_moved_are_red(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tenth of the work, for the time of the test: most routes are then left out, and say so.
    monkeypatch.setattr(effort, "MOST_WORK", effort.MOST_WORK / 10)
    verdict = judged(64, moved=64)
    single = [f for f in verdict.findings if f.measure == MMD and not f.everything]
    assert verdict.level == "red" and {f.level for f in single if f.tested} == {"red"}
    left = [f for f in single if not f.tested]
    assert 0 < len(left) < 64 and all("not tested, the effect is" in f.text for f in left)


@pytest.mark.parametrize("routes", [2, 300])
def test_a_shift_of_all_rows_is_found_however_many_routes_there_are(
    monkeypatch: pytest.MonkeyPatch, routes: int
) -> None:
    monkeypatch.setattr(effort, "MOST_WORK", effort.MOST_WORK / 100)
    verdict = judged(routes, moved=routes)
    [whole] = [f for f in verdict.findings if f.measure == MMD and f.everything]
    assert whole.level == "red" and whole.p_adjusted is not None and whole.p_adjusted <= 0.01
    assert whole.rows == min(512, 200 * routes)
