"""What the calls of servers cost in one run, and the budget that they are kept within.

The costs are a file of the run, so that a command that goes on pays from what is left. A call stands in it
with the most that it can cost before it is made; a process that is killed leaves that sum there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sgpu.engines.base import Tokens
from sgpu.errors import BudgetError
from sgpu.storage.location import Location

FILE = "bill.json"
POLL_S = 0.05
MILLION = 1e6


@dataclass(frozen=True)
class Terms:
    """Who is paid, at which price for a million tokens (read, written), and the run's bounds.

    ``setting`` is what raises them.
    """

    model: str
    price: tuple[float, float] = (0.0, 0.0)
    tokens: int | None = None
    usd: float | None = None
    setting: str = "budget"


class CallCosts:
    """Bookkeeping for one server's model; as a Ray actor, so that all workers share it."""

    def __init__(self, folder: Location, terms: Terms) -> None:
        self._file, self._terms = folder / FILE, terms
        self._lines: dict[str, dict[str, float]] = read_costs(folder)
        nothing: dict[str, float] = {"calls": 0, "input_tokens": 0, "output_tokens": 0, "usd": 0.0}
        self._own = self._lines.setdefault(terms.model, nothing)
        self._open: dict[int, Tokens] = {}
        self._tickets = 0

    def reserve(self, most: Tokens) -> int | str | None:
        """A ticket; None where it may fit once other calls are settled; else why the call may not be made."""
        if refusal := self._over(most):
            return None if self._open else refusal
        self._tickets += 1
        self._open[self._tickets] = most
        self._own["calls"] += 1
        self._add(most, 1)
        return self._tickets

    def settle(self, ticket: int, used: Tokens) -> None:
        """In place of the most that the call could cost, what it did."""
        self._add(self._open.pop(ticket), -1)
        self._add(used, 1)

    def _add(self, tokens: Tokens, sign: int) -> None:
        self._own["input_tokens"] += sign * tokens[0]
        self._own["output_tokens"] += sign * tokens[1]
        self._own["usd"] = self._usd((int(self._own["input_tokens"]), int(self._own["output_tokens"])))
        if sign > 0:
            self._file.write_bytes(json.dumps(self._lines, indent=1).encode())

    def _usd(self, tokens: Tokens) -> float:
        return sum(count * price for count, price in zip(tokens, self._terms.price, strict=True)) / MILLION

    def _over(self, most: Tokens) -> str:
        spent = sum(int(line["input_tokens"] + line["output_tokens"]) for line in self._lines.values())
        usd, terms = sum(line["usd"] for line in self._lines.values()), self._terms
        kept_tokens = terms.tokens is None or spent + sum(most) <= terms.tokens
        kept_usd = terms.usd is None or usd + self._usd(most) <= terms.usd
        if kept_tokens and kept_usd:
            return ""
        left = [f"{terms.tokens - spent} of {terms.tokens} tokens"] if terms.tokens is not None else []
        left += [f"{terms.usd - usd:.4f} of {terms.usd:g} USD"] if terms.usd is not None else []
        return (
            f"of the budget {' and '.join(left)} are left, the next call may cost {sum(most)} tokens"
            f"{f' ({self._usd(most):.4f} USD)' if any(terms.price) else ''}; raise `{terms.setting}` to go on"
        )


def read_costs(folder: Location) -> dict[str, dict[str, float]]:
    """By model what a run has paid for so far."""
    return dict((folder / FILE).read_json() or {})


class CostsClient:
    """What calls are paid from: a `CallCosts`, wherever that is; ``ask`` calls a method of it by name."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def reserve(self, most: Tokens) -> int:
        """Return a ticket for a call that costs ``most``; wait while others hold it. Raises BudgetError."""
        while (ticket := self._ask("reserve", most)) is None:
            time.sleep(POLL_S)
        if isinstance(ticket, str):
            raise BudgetError(ticket)
        return int(ticket)

    def settle(self, ticket: int, used: Tokens) -> None:
        """Put what the call has cost, or may have, in the place of the most that it could."""
        self._ask("settle", ticket, used)
