"""The cut against closed forms, and its promise against many draws of calibration rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from sgpu.errors import DataError, UsageError
from sgpu.fitted.risk_control import CUTS, STARTS, p_values, probability_cut, rows_needed, upper_bound
from sgpu.stages.labelled_sets import LabelledSets


def test_the_p_value_is_the_sum_of_the_binomial_formula() -> None:
    by_hand = sum(math.comb(60, k) * 0.1**k * 0.9 ** (60 - k) for k in range(3))
    assert p_values(2, 60, 0.1) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(("wrong", "accepted"), [(0, 60), (3, 200), (17, 40), (40, 40)])
def test_the_bound_is_clopper_and_pearsons(wrong: int, accepted: int) -> None:
    exact = binomtest(wrong, accepted, alternative="less").proportion_ci(0.975, "exact").high
    assert upper_bound(wrong, accepted, 0.025) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("wrong", "accepted"), [*itertools.product((0, 1, 5, 20), (25, 90, 400))])
def test_a_small_p_value_and_a_small_bound_are_the_same(wrong: int, accepted: int) -> None:
    for alpha in (0.05, 0.1, 0.3):
        assert (p_values(wrong, accepted, alpha) <= 0.02) == (upper_bound(wrong, accepted, 0.02) <= alpha)


def test_so_many_rows_are_needed_as_the_closed_form_says() -> None:
    # No wrong row of n: (1 - alpha)^n <= delta / starts.
    n = rows_needed(0.1, 0.05)
    assert 0.9**n <= 0.05 / len(STARTS) < 0.9 ** (n - 1)
    right = np.ones(n)
    assert probability_cut(np.full(n, 0.97), right, 0.1) is not None
    assert probability_cut(np.full(n - 1, 0.97), right[1:], 0.1) is None


def test_perfect_answers_are_all_accepted() -> None:
    found = probability_cut(np.linspace(0, 1, 500), np.ones(500), 0.05)
    assert found is not None
    assert (found.rule.cut, found.accepted, found.wrong) == (0.0, 500, 0)
    assert found.upper == pytest.approx(1 - (0.05 / len(STARTS)) ** (1 / 500), rel=1e-9)


def test_wrong_answers_at_the_top_leave_no_cut() -> None:
    probability = np.linspace(0, 1, 1000)
    assert probability_cut(probability, (probability < 0.5).astype(int), 0.05) is None


def test_no_rows_give_no_cut() -> None:
    assert probability_cut([], [], 0.1) is None


def test_the_cut_stops_above_the_first_that_cannot_be_shown() -> None:
    # Right above 0.6, wrong below: every lower cut accepts more wrong rows.
    probability = np.linspace(0.0025, 0.9975, 400)
    found = probability_cut(probability, (probability > 0.6).astype(int), 0.1)
    assert found is not None
    assert 0.5 < found.rule.cut <= 0.6
    assert found.upper <= 0.1
    accepted = probability >= CUTS[CUTS.index(found.rule.cut) + 1]
    wrong = int((probability[accepted] <= 0.6).sum())
    assert upper_bound(wrong, int(accepted.sum()), 0.05 / len(STARTS)) > 0.1


def test_a_lower_cut_that_would_pass_is_not_reached_across_one_that_does_not() -> None:
    # Right above 0.5, wrong from 0.4 to 0.5, and so many right below that all together are right enough.
    probability = np.concatenate([np.linspace(0.5, 1, 300), np.linspace(0.4, 0.49, 100), np.full(5000, 0.1)])
    label = np.concatenate([np.ones(300), np.zeros(100), np.ones(5000)])
    assert p_values(100, 5400, 0.1) < 1e-9
    found = probability_cut(probability, label, 0.1)
    assert found is not None and 0.45 < found.rule.cut <= 0.5


def test_what_it_counts_is_what_the_cut_accepts() -> None:
    draw = np.random.default_rng(0)
    probability = draw.beta(4, 2, 2000).round(2)  # ties, also with cuts
    label = (draw.random(2000) < probability).astype(int)
    found = probability_cut(probability, label, 0.2)
    assert found is not None
    accepted = found.rule.accepts(probability)
    assert (found.accepted, found.wrong) == (accepted.sum(), (1 - label[accepted]).sum())
    assert (found.rule.alpha, found.rule.delta, found.rule.n_calibration) == (0.2, 0.05, 2000)


def test_more_rows_and_a_looser_target_accept_more() -> None:
    draw = np.random.default_rng(1)
    probability = draw.random(20_000)
    label = (draw.random(20_000) < probability).astype(int)
    asked = ((800, 0.2), (20_000, 0.2), (20_000, 0.4))
    cuts = [probability_cut(probability[:n], label[:n], alpha) for n, alpha in asked]
    values = [found.rule.cut for found in cuts if found is not None]
    assert len(values) == 3 and values == sorted(values, reverse=True)
    # With ever more rows it tends to where the error rate is alpha: (1 - cut) / 2 = alpha.
    assert values[1] == pytest.approx(0.6, abs=0.05) and values[1] >= 0.6


def violations(
    right_at: np.ndarray, alpha: float, delta: float, rows: int, repeats: int
) -> tuple[float, float]:
    """Share of draws whose cut has a true error rate above ``alpha``, and of those with any cut.

    Probabilities are spread evenly over the middles of as many parts of [0, 1] as ``right_at`` has values,
    and right with those probabilities, so that the true rate is known at every cut.
    """
    parts = len(right_at)
    middles = (np.arange(parts) + 0.5) / parts
    true_rate = {cut: float((1 - right_at)[middles >= cut].mean()) for cut in CUTS if (middles >= cut).any()}
    draw = np.random.default_rng(7)
    broken = found = 0
    for _ in range(repeats):
        place = draw.integers(parts, size=rows)
        label = (draw.random(rows) < right_at[place]).astype(int)
        chosen = probability_cut(middles[place], label, alpha, delta)
        if chosen is not None:
            found += 1
            broken += true_rate[chosen.rule.cut] > alpha
    return broken / repeats, found / repeats


STEP = np.where(np.arange(200) < 100, 0.45, 0.97)  # the error rate rises steeply below 0.5
LINE = np.linspace(0.3, 1.0, 200)
# Wrong in a part of the middle, right below it as above.
HUMP = np.where((np.arange(200) > 130) & (np.arange(200) < 150), 0.2, 0.97)


@pytest.mark.parametrize(("right_at", "alpha"), [(STEP, 0.1), (LINE, 0.15), (HUMP, 0.15)])
@pytest.mark.parametrize("rows", [300, 1500])
def test_the_promise_is_broken_at_most_as_often_as_stated(
    right_at: np.ndarray, alpha: float, rows: int
) -> None:
    delta, repeats = 0.2, 400
    broken, found = violations(right_at, alpha, delta, rows, repeats)
    assert found > 0.3  # else the promise would be empty
    assert broken <= delta + 3 * math.sqrt(delta * (1 - delta) / repeats)


def test_the_promise_is_not_kept_by_never_coming_near_it() -> None:
    """Where the rate crosses alpha at a start, and steeply enough below for one false step to count."""
    flat = np.full(200, 0.88)  # every cut has an error rate of 0.12 > 0.119
    broken, _ = violations(flat, 0.119, 0.2, 4000, 400)
    assert 0.02 < broken <= 0.2 + 0.06


def grouped(rng: np.random.Generator, rows: int, size: int, error: float) -> tuple[LabelledSets, np.ndarray]:
    """Calibration rows of which ``size`` are the same but for their ids, with their probabilities."""
    places = np.arange(rows) // size
    label = (rng.random(rows // size) >= error).astype(int)[places]
    ids, groups = [f"q{row}" for row in range(rows)], [f"g{place}" for place in places]
    split = np.full(rows, "validation")
    sets = LabelledSets(ids, [["a"]] * rows, label, split, 6, "given", {}, (), "own", "0" * 64, groups)
    return sets, rng.random(rows // size)[places]


@pytest.mark.parametrize("size", [1, 5, 10])
def test_groups_of_rows_do_not_break_the_promise(size: int) -> None:
    alpha, delta, repeats = 0.1, 0.05, 300
    rng = np.random.default_rng(3)
    independent = all_rows = 0
    for repeat in range(repeats):
        sets, probability = grouped(rng, 500, size, error=0.15)  # every cut errs too often
        kept = sets.independent("validation", repeat)
        assert len(kept) == 500 // size
        independent += probability_cut(probability[kept], sets.label[kept], alpha, delta) is not None
        all_rows += probability_cut(probability, sets.label, alpha, delta) is not None
    assert independent / repeats <= delta
    if size == 10:
        assert all_rows / repeats > 5 * delta  # so the rows of a group must not be counted each


@pytest.mark.parametrize(("alpha", "delta"), [(0.0, 0.1), (1.0, 0.1), (0.1, 0.0), (0.1, 1.5)])
def test_levels_outside_zero_and_one_are_refused(alpha: float, delta: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        probability_cut([0.5], [1], alpha, delta)


@pytest.mark.parametrize(
    ("probability", "label"), [([0.5, float("nan")], [1, 0]), ([0.5, 1.2], [1, 0]), ([0.5], [2])]
)
def test_rows_that_are_no_probabilities_and_labels_are_refused(
    probability: list[float], label: list[int]
) -> None:
    with pytest.raises(DataError):
        probability_cut(probability, label, 0.1)
