"""What calls cost, and the budget that they are kept within."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sgpu.engines.costs import CallCosts, CostsClient, Terms, read_costs
from sgpu.errors import BudgetError
from sgpu.runtime.ledger import ask
from sgpu.storage.location import Location


def bill(folder: Path, tokens: int | None = None, usd: float | None = None, model: str = "m") -> CallCosts:
    return CallCosts(Location.of(folder), Terms(model, (1.0, 2.0), tokens, usd))


def test_a_call_is_paid_with_what_it_cost(tmp_path: Path) -> None:
    own = bill(tmp_path)
    ticket = own.reserve((100, 50))
    assert isinstance(ticket, int)
    own.settle(ticket, (10, 5))
    line = {"calls": 1, "input_tokens": 10, "output_tokens": 5, "usd": pytest.approx(20e-6)}
    assert read_costs(Location.of(tmp_path)) == {"m": line}


def test_a_call_that_may_cost_more_than_is_left_is_not_made(tmp_path: Path) -> None:
    own = bill(tmp_path, tokens=100)
    first = own.reserve((30, 30))
    assert isinstance(first, int)
    assert own.reserve((30, 30)) is None  # what the first one leaves may do
    own.settle(first, (30, 20))
    with pytest.raises(BudgetError, match=r"50 of 100 tokens are left.*may cost 60 tokens"):
        CostsClient(partial(ask, own)).reserve((30, 30))
    assert CostsClient(partial(ask, own)).reserve((30, 20)) > 0


def test_the_budget_in_usd_is_that_of_all_models(tmp_path: Path) -> None:
    other = bill(tmp_path, usd=300e-6, model="other")
    other.settle(other.reserve((100, 50)), (100, 50))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match=r"0\.0001 of 0\.0003 USD"):
        CostsClient(partial(ask, bill(tmp_path, usd=300e-6))).reserve((0, 51))


def test_a_process_that_was_killed_leaves_the_most_that_its_calls_could_cost(tmp_path: Path) -> None:
    bill(tmp_path, tokens=100).reserve((60, 30))
    assert isinstance(bill(tmp_path, tokens=100).reserve((10, 1)), str)
    assert isinstance(bill(tmp_path, tokens=100).reserve((9, 1)), int)


def test_calls_side_by_side_never_go_over_the_budget(tmp_path: Path) -> None:
    own, lock = bill(tmp_path, tokens=1000), threading.Lock()

    class InTurn:
        """As an actor: one call after the other."""

        def reserve(self, most: tuple[int, int]) -> int | str | None:
            with lock:
                return own.reserve(most)

        def settle(self, ticket: int, used: tuple[int, int]) -> None:
            with lock:
                own.settle(ticket, used)

    account = CostsClient(partial(ask, InTurn()))

    def call(_: int) -> bool:
        try:
            ticket = account.reserve((10, 20))
        except BudgetError:
            return False
        account.settle(ticket, (10, 10))
        return True

    with ThreadPoolExecutor(8) as pool:
        made = sum(pool.map(call, range(200)))
    spent = read_costs(Location.of(tmp_path))["m"]
    assert spent["input_tokens"] + spent["output_tokens"] == 20 * made <= 1000
    assert made >= 49
