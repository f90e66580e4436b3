"""Who may run beside whom in one actor."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sgpu.stages.worker import Turns


def test_blocks_run_beside_each_other() -> None:
    turns, both_are_in = Turns(), threading.Barrier(2)

    def block() -> None:
        with turns.together():
            both_are_in.wait(timeout=10)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(block), pool.submit(block)]:
            future.result()


@pytest.mark.parametrize("kind", ["together", "alone"])
def test_nothing_runs_beside_a_block_that_runs_alone(kind: str) -> None:
    turns, other_is_in = Turns(), threading.Event()

    def other() -> None:
        with getattr(turns, kind)():
            other_is_in.set()

    with ThreadPoolExecutor(1) as pool:
        with turns.alone():
            future = pool.submit(other)
            assert not other_is_in.wait(timeout=0.2)
        future.result(timeout=10)
    assert other_is_in.is_set()


def test_a_block_that_fails_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="failed"), turns.together():
        raise ValueError("failed")
    with turns.alone():
        pass
