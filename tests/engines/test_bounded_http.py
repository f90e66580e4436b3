from __future__ import annotations

from types import SimpleNamespace

import pytest

from sgpu.engines import bounded_http
from sgpu.engines.bounded_http import RateLimit


def test_turns_are_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(bounded_http, "time", SimpleNamespace(monotonic=lambda: 100.0, sleep=waits.append))
    limit = RateLimit(120)
    for _ in range(4):
        limit.wait()
    assert waits == pytest.approx([0.5, 1.0, 1.5])


def test_no_wait_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0])
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=waits.append)
    monkeypatch.setattr(bounded_http, "time", clock)
    limit = RateLimit(60)
    limit.wait()
    limit.wait()
    assert waits == []


def test_rate_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="requests_per_minute is 0"):
        RateLimit(0)
