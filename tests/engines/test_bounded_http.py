from __future__ import annotations

import pytest

from sgpu.engines.bounded_http import RateLimit


def test_turns_are_evenly_spaced() -> None:
    now = 100.0
    waits: list[float] = []
    limit = RateLimit(120, clock=lambda: now, sleep=waits.append)
    for _ in range(4):
        limit.wait()
    assert waits == pytest.approx([0.5, 1.0, 1.5])


def test_no_wait_after_a_pause() -> None:
    times = iter([0.0, 10.0])
    waits: list[float] = []
    limit = RateLimit(60, clock=lambda: next(times), sleep=waits.append)
    limit.wait()
    limit.wait()
    assert waits == []


def test_rate_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="requests_per_minute is 0"):
        RateLimit(0)
