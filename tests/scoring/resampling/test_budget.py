from __future__ import annotations

import pytest

from sgpu.errors import UsageError
from sgpu.scoring.resampling.budget import RequestCost, ResampleBudget, rate_limit
from sgpu.scoring.settings import ResampleSettings

SETTINGS = ResampleSettings(base_url="http://127.0.0.1:9/v1", requests=25, tokens=1003)


def test_all_requests_of_the_day_have_all_its_tokens() -> None:
    assert ResampleBudget.of(SETTINGS, None) == ResampleBudget.of(SETTINGS, 25) == ResampleBudget(25, 1003)


@pytest.mark.parametrize("parts", [[25], [9, 8, 8], [1] * 25, [0] * 7 + [25]])
def test_parts_never_add_up_to_more_than_the_whole(parts: list[int]) -> None:
    found = [ResampleBudget.of(SETTINGS, most) for most in parts]
    assert [one.requests for one in found] == parts
    assert 1003 - len(parts) < sum(one.tokens or 0 for one in found) <= 1003


def test_without_a_bound_on_tokens_the_requests_alone_count() -> None:
    left = ResampleBudget.of(ResampleSettings(base_url="http://127.0.0.1:9/v1", requests=3), None)
    left.spend(2, 10**9)
    assert left == ResampleBudget(1, None)
    assert left.allows(10**9)


def test_more_than_the_day_has_cannot_be_had() -> None:
    assert ResampleBudget.of(SETTINGS, 99) == ResampleBudget(25, 1003)


def test_no_limit_is_no_limit() -> None:
    assert rate_limit(None, 8) is None


def test_a_rate_below_one_for_each_worker_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="below one for each of 8 workers"):
        rate_limit(5, workers=8)


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
