"""Keeping requests to a server below a given rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """Evenly spaced turns for any number of threads; never more than ``per_minute`` starts in a minute."""

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_minute < 1:
            raise ValueError(f"requests_per_minute is {per_minute}; it must be at least 1")
        self._interval = 60.0 / per_minute
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next = float("-inf")

    def wait(self) -> None:
        """Block until this thread's turn."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._interval
        if turn > now:
            self._sleep(turn - now)
