from __future__ import annotations

from sgpu.scoring.resampling.budget import RequestCost, ResampleBudget


def test_without_a_bound_on_tokens_the_requests_alone_count() -> None:
    left = ResampleBudget(3, None)
    left.spend(2, 10**9)
    assert left == ResampleBudget(1, None)
    assert left.allows(10**9)


def test_what_is_left_beside_one_try_each_is_shared_for_further_tries() -> None:
    costs = [RequestCost(1, 10), RequestCost(1, 30)]
    ResampleBudget(2, 100).share_out(costs)
    assert [cost.allowed for cost in costs] == [10 + 30, 30 + 30]


def test_a_try_is_repeated_only_within_what_is_allowed() -> None:
    cost = RequestCost(1, 10, allowed=25)
    cost.add(10)
    assert cost.allows_another_try
    cost.add(10)
    assert not cost.allows_another_try


def test_without_a_bound_on_tokens_every_try_is_allowed() -> None:
    cost = RequestCost(1, 10)
    ResampleBudget(1, None).share_out([cost])
    cost.add(10**9)
    assert cost.allows_another_try
