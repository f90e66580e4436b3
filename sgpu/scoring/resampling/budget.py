"""What asking again may cost: what is under way never adds up to more than what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgpu.engines.base import Tokens


@dataclass
class RequestCost:
    """What the tries of one request may have cost, in tokens of questions and answers.

    A `sgpu.engines.chat_calls.TokenAccount`: a try is on it at the most that it can cost until it is settled.

    ``question``: the most that reading the question costs; ``most``: the most of one try. A try is repeated
    only if that keeps ``tokens`` within ``allowed`` (None: no bound).
    """

    question: int
    most: int
    allowed: int | None = None
    tokens: int = 0

    def add(self, tokens: int) -> None:
        self.tokens += tokens

    def reserve(self, most: Tokens) -> int:
        self.add(sum(most))
        return sum(most)

    def settle(self, ticket: int, used: Tokens) -> None:
        self.add(sum(used) - ticket)

    @property
    def allows_another_try(self) -> bool:
        return self.allowed is None or self.tokens + self.most <= self.allowed


@dataclass
class ResampleBudget:
    """What is left of it. ``tokens`` None: no bound beside that of the requests."""

    requests: int
    tokens: int | None

    def allows(self, tokens: int) -> bool:
        return self.tokens is None or tokens <= self.tokens

    def share_out(self, costs: Sequence[RequestCost]) -> None:
        """Let each cost grow by an equal part of what is left when all have cost the most of one try."""
        if self.tokens is not None and costs:
            spare = (self.tokens - sum(cost.most for cost in costs)) // len(costs)
            for cost in costs:
                cost.allowed = cost.most + spare

    def spend(self, requests: int, tokens: int) -> None:
        self.requests -= requests
        if self.tokens is not None:
            self.tokens -= tokens
