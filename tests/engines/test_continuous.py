"""Calls of several threads through one engine, against a stand-in that steps like vLLM's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from sgpu.engines.vllm import ContinuousBatching


@dataclass
class SteppingLLM:
    """Each request needs as many steps as its input says; -1 breaks the step, a text is refused."""

    left: dict[int, int] = field(default_factory=dict)
    together: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    withdrawn: list[str] = field(default_factory=list)
    ended: bool = False
    _next: int = 0

    @property
    def llm_engine(self) -> SteppingLLM:
        return self

    @property
    def engine_core(self) -> SimpleNamespace:
        return SimpleNamespace(shutdown=lambda: setattr(self, "ended", True))

    def reset_prefix_cache(self) -> None:
        assert not self.left

    def enqueue(self, inputs: Sequence[Any], parameters: Sequence[Any], use_tqdm: bool) -> list[str]:
        if any(isinstance(one, str) for one in inputs):
            raise ValueError("not a prompt")
        names = []
        for steps in inputs:
            self.left[self._next] = steps
            names.append(f"{self._next}-8f3a")
            self._next += 1
        return names

    def step(self) -> list[Any]:
        self.threads.add(threading.current_thread().name)
        self.together.append(len(self.left))
        if -1 in self.left.values():
            raise RuntimeError("the engine broke")
        for number in self.left:
            self.left[number] -= 1
        done = [number for number, steps in self.left.items() if steps == 0]
        for number in done:
            del self.left[number]
        return [SimpleNamespace(request_id=str(number), finished=True) for number in reversed(done)]

    def abort_request(self, names: list[str], internal: bool) -> None:
        self.withdrawn += names
        for name in names:
            self.left.pop(int(name.split("-")[0]), None)


@pytest.fixture
def llm() -> SteppingLLM:
    return SteppingLLM()


@pytest.fixture
def shared(llm: SteppingLLM) -> Iterator[ContinuousBatching]:
    shared = ContinuousBatching(lambda: llm)
    yield shared
    shared.close()
    assert llm.ended


def _numbers(outputs: list[Any]) -> list[int]:
    return [int(output.request_id) for output in outputs]


def test_outputs_come_in_the_order_of_the_inputs(shared: ContinuousBatching) -> None:
    assert _numbers(shared.generate([9, 2, 5], [None] * 3)) == [0, 1, 2]
    assert _numbers(shared.generate([1], [None])) == [3]
    assert shared.generate([], []) == []


def test_calls_of_several_threads_run_together_in_one_thread(
    llm: SteppingLLM, shared: ContinuousBatching
) -> None:
    both_are_in = threading.Barrier(2)

    def call(_: int) -> list[Any]:
        both_are_in.wait()
        return shared.generate([20_000, 20_000], [None] * 2)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(call, range(2))
    assert sorted(_numbers(first) + _numbers(second)) == [0, 1, 2, 3]
    assert max(llm.together) == 4 and llm.threads == {"vllm"}


def test_a_refused_call_leaves_the_engine_to_others(shared: ContinuousBatching) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        shared.generate(["?"], [None])
    assert len(shared.generate([3], [None])) == 1


def test_a_broken_step_withdraws_what_was_running(llm: SteppingLLM, shared: ContinuousBatching) -> None:
    with pytest.raises(RuntimeError, match="the engine broke"):
        shared.generate([5, -1], [None] * 2)
    assert llm.withdrawn == ["0-8f3a", "1-8f3a"]
    assert _numbers(shared.generate([2], [None])) == [2]


def test_what_stops_the_engine_from_starting_is_raised() -> None:
    def build() -> Callable[[], None]:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        ContinuousBatching(build)
