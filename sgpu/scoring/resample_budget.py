"""What asking again may cost, and how fast: parts of it never add up to more than the whole."""

from __future__ import annotations

from dataclasses import dataclass

from sgpu.engines.rate import RateLimit
from sgpu.errors import UsageError
from sgpu.scoring.resample_settings import ResampleSettings


@dataclass
class Budget:
    """What is left of it. ``tokens`` None: no bound beside that of the requests."""

    requests: int
    tokens: int | None

    @classmethod
    def of(cls, settings: ResampleSettings, most: int | None) -> Budget:
        """For ``most`` of the day's requests, with as large a part of its tokens; None: for all of them."""
        requests = settings.requests if most is None else min(most, settings.requests)
        tokens = settings.tokens
        return cls(requests, None if tokens is None else tokens * requests // settings.requests)

    def allows(self, tokens: int) -> bool:
        return self.tokens is None or tokens <= self.tokens

    def spend(self, requests: int, tokens: int) -> None:
        self.requests -= requests
        if self.tokens is not None:
            self.tokens -= tokens


def rate_limit(per_minute: int | None, workers: int) -> RateLimit | None:
    """That of one of ``workers`` processes. UsageError where it would be below one request a minute."""
    if per_minute is None:
        return None
    if per_minute < workers:
        raise UsageError(
            f"requests_per_minute is {per_minute}, below one for each of {workers} workers; use fewer workers"
        )
    return RateLimit(per_minute // workers)
