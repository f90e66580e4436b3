"""Which rows are being worked on: tells a poison row from an unlucky one, and counts progress.

A worker that dies takes its whole block with it, and Ray retries the block for ever. The ledger sees
that a batch was begun and never ended, lets its rows run alone, and gives up on a row that has killed
its worker by itself `MAX_LONE_DEATHS` times. More than one, because a worker may die of something else. That
a node is gone says nothing of the rows that were begun there: a spot node was taken away, and they are begun
again together, as they were.

Rows that fail for a reason outside themselves wait for the next run. After `GIVE_UP_AFTER` of them in a row
no further row is begun, nor where the first `DEAD_ROWS` rows have all killed their worker: that is the
engine's fault.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

Advice = Literal["together", "alone", "quarantine", "stop"]
MAX_LONE_DEATHS = 2
GIVE_UP_AFTER = 20
DEAD_ROWS = 5
# What `Ledger.progress` says beside the counts.
IN_WORK, SINCE = "in work", "seconds since the first row was begun"


class Locked:
    """An object that threads of this process share: its methods run one at a time, as those of an actor."""

    def __init__(self, shared: object) -> None:
        self._shared, self._lock = shared, threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._shared, name)

        def call(*arguments: Any) -> Any:
            with self._lock:
                return method(*arguments)

        return call


def ask(shared: Any, name: str, *arguments: Any) -> Any:
    """Call a method of what several workers share: a Ray actor, or an object of this process."""
    method = getattr(shared, name)
    if not hasattr(method, "remote"):
        return method(*arguments)
    import ray

    return ray.get(method.remote(*arguments))


class Ledgers:
    """The ledgers of a pool's stages, by number: one object for all its actors."""

    def __init__(self, kind: type[Ledger], of_each: Sequence[Mapping[str, Any]]) -> None:
        self._ledgers = [kind(**arguments) for arguments in of_each]
        self._written = [0] * len(of_each)
        self._starts, self._starting, self._busy = 0, 0.0, 0.0
        self._is_ready, self._heard = False, time.monotonic()

    def count_start(self, seconds: float) -> None:
        """Count an actor of the pool that has opened what it holds, an engine for instance."""
        self._hear()
        self._starts += 1
        self._starting += seconds

    def count_block(self, stage: int, rows: int, seconds: float) -> None:
        """Count the rows of a stage that an actor has written, and seconds in which it was not idle."""
        self._hear()
        self._written[stage] += rows
        self._busy += seconds

    def written(self) -> list[int]:
        """Return how many rows of each stage were written."""
        return self._written

    def call(self, stage: int, method: str, *arguments: Any) -> Any:
        """Call a method of one stage's ledger."""
        self._hear()
        return getattr(self._ledgers[stage], method)(*arguments)

    def quiet(self) -> tuple[bool, float]:
        """Return whether a worker is ready, and seconds since one was last heard of, else since the start."""
        return self._is_ready, time.monotonic() - self._heard

    def _hear(self) -> None:
        self._is_ready, self._heard = True, time.monotonic()

    def progress(self) -> dict[str, float]:
        """Sum up `Ledger.progress` of all stages."""
        return sum_progress(ledger.progress() for ledger in self._ledgers)

    def spent(self) -> tuple[int, float, float]:
        """Return the starts of the pool's actors, the seconds that they took, and the seconds of work."""
        return self._starts, self._starting, self._busy


def sum_progress(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of what several ledgers tell, since the first row of all was begun."""
    total, since = Counter[str](), 0.0
    for part in parts:
        since = max(since, part[SINCE])
        total.update({name: value for name, value in part.items() if name != SINCE})
    return {**total, SINCE: since}


class StageLedger:
    """One stage's ledger, as the actors of its pool see it; ``shared`` is the `Ledgers` or its Ray actor."""

    def __init__(self, shared: Any, stage: int) -> None:
        self._shared, self._stage = shared, stage

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(ask, self._shared, "call", self._stage, method)

    @property
    def node(self) -> str:
        """The node of this process, if it shares its ledger with others."""
        if not hasattr(self._shared.call, "remote"):
            return ""
        import ray

        return str(ray.get_runtime_context().get_node_id())


class WorkDone(NamedTuple):
    """Totals of a run, its seconds of work, rows that wait for the next run and why, whether it gave up."""

    counts: dict[str, float]
    seconds: float
    waiting: dict[str, str]
    gave_up: bool


def sum_work(parts: Sequence[WorkDone]) -> WorkDone:
    """Return the work of several stages that write one partition."""
    counts: Counter[str] = Counter()
    waiting: dict[str, str] = {}
    for part in parts:
        counts.update(part.counts)
        waiting |= part.waiting
    seconds = max(part.seconds for part in parts)
    return WorkDone(dict(counts), seconds, waiting, any(part.gave_up for part in parts))


class Ledger:
    """Plain bookkeeping that the workers of a stage share: `Locked`, or a Ray actor, which outlives them."""

    def __init__(
        self,
        max_lone_deaths: int = MAX_LONE_DEATHS,
        give_up_after: float = GIVE_UP_AFTER,
        living_nodes: Callable[[], Collection[str]] | None = None,
        is_proven: bool = False,
    ) -> None:
        """``is_proven``: a row of the stage came through in an earlier run."""
        self._max, self._give_up_after, self._living_nodes = max_lone_deaths, give_up_after, living_nodes
        self._is_proven, self._dead = is_proven, set[str]()
        self._waiting: dict[str, str] = {}  # rows that the next run tries again, with the reason
        self._in_a_row = 0  # of these, without a row between them that came through
        self._open: dict[str, str] = {}  # begun in a batch and not ended, with the worker's node
        self._suspects: set[str] = set()  # were in a batch whose worker died
        self._lone_open: dict[str, str] = {}
        self._lone_deaths: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._first_begin: float | None = None
        self._last_end = 0.0

    def begin(self, ids: Sequence[str], node: str = "") -> Advice:
        """A worker on ``node`` is about to work on ``ids`` together; says whether it should."""
        if self._first_begin is None:
            self._first_begin = time.monotonic()
        if self.gave_up():
            return "stop"
        unended = {self._open[i] for i in ids if i in self._open}
        if not self._suspects.isdisjoint(ids) or (unended and not self._gone(unended)):
            self._suspects.update(ids)
            return "alone"
        self._open.update(dict.fromkeys(ids, node))
        return "together"

    def begin_alone(self, row_id: str, node: str = "") -> Advice:
        """A worker on ``node`` is about to work on one row of a suspect batch."""
        if self.gave_up():
            return "stop"
        if row_id in self._lone_open and not self._gone({self._lone_open[row_id]}):
            self._lone_deaths[row_id] += 1
        if self._lone_deaths[row_id] >= self._max:
            self._lone_open.pop(row_id, None)
            self._dead.add(row_id)
            return "quarantine"
        self._lone_open[row_id] = node
        return "alone"

    def _gone(self, nodes: Collection[str]) -> bool:
        """Whether none of these nodes lives, as far as anybody can say."""
        return self._living_nodes is not None and set(self._living_nodes()).isdisjoint(nodes)

    def end_alone(self, row_id: str) -> None:
        """The row is done, with a result or with a fault of its own."""
        self._lone_open.pop(row_id, None)
        self._waiting.pop(row_id, None)
        self._in_a_row, self._is_proven = 0, True

    def postpone(self, row_id: str, reason: str) -> None:
        """A row failed for a ``reason`` outside itself."""
        self._lone_open.pop(row_id, None)
        self._waiting[row_id] = reason
        self._in_a_row += 1

    def end(self, ids: Sequence[str], counts: Mapping[str, float], failed: int = 0) -> None:
        """The rows are done, each with a result or, for ``failed`` of them, a recorded failure."""
        self.close(ids)
        done = [row_id for row_id in ids if row_id not in self._waiting]
        if done:
            self._in_a_row, self._is_proven = 0, True
        self._counts.update({"rows": len(done), **counts})
        self._last_end = time.monotonic()

    def close(self, ids: Sequence[str]) -> None:
        """Nobody works on these rows any more; what came of them is told elsewhere."""
        for row_id in ids:
            self._open.pop(row_id, None)
            self._lone_open.pop(row_id, None)
        self._suspects.difference_update(ids)

    def gave_up(self) -> bool:
        """Return whether so many rows failed that no further one is begun."""
        dead = len(self._dead) >= DEAD_ROWS and not self._is_proven
        return dead or self._in_a_row >= self._give_up_after

    def counts(self) -> dict[str, float]:
        """Totals of this run: rows, and whatever the workers count (tokens, answers...)."""
        return dict(self._counts)

    def progress(self) -> dict[str, float]:
        """`counts`, the rows that were begun and have not ended, and the seconds since the first of all."""
        begun = 0.0 if self._first_begin is None else time.monotonic() - self._first_begin
        return {**self.counts(), IN_WORK: len(self._open.keys() | self._lone_open.keys()), SINCE: begun}

    def work_done(self) -> WorkDone:
        """Return all that came of this run, with the seconds from its first batch to its last result."""
        seconds = 0.0 if self._first_begin is None else max(0.0, self._last_end - self._first_begin)
        return WorkDone(self.counts(), seconds, dict(self._waiting), self.gave_up())


def on_node(node: str | None = None) -> dict[str, Any]:
    """Options of an actor or task that takes no CPU and stays on a node, by default that of this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = node or ray.get_runtime_context().get_node_id()
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def living_nodes() -> set[str]:
    """Of the cluster of this process, by the ids that Ray gives them."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
