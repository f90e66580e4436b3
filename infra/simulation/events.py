"""The event loop: actors of ready stages take blocks from queues, straggle, are lost and come back."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sgpu.errors import UsageError

EventKind = Literal["ready", "done", "lost", "replaced"]
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class StageLoad:
    """One stage: equal blocks for actors of ``gpus`` each; it begins when the stages ``after`` are done."""

    name: str
    rows: int
    blocks: int
    block_seconds: float
    gpus: float
    start_seconds: float = 0.0
    after: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What keeps a cluster from its ideal time; the defaults are none of it."""

    speed_spread: float = 0.0
    block_spread: float = 0.0
    straggler_share: float = 0.0
    straggler_factor: float = 1.0
    losses_per_gpu_hour: float = 0.0
    replace_seconds: float = 0.0
    ledger_seconds: float = 0.0  # of one block, in the one ledger of its stage


@dataclass
class StageRun:
    """What became of a stage; GPU-seconds by what the GPUs did."""

    load: StageLoad
    began: float = 0.0
    ended: float = 0.0
    working: float = 0.0
    starting: float = 0.0
    lost: float = 0.0
    redone: int = 0
    done_at: list[float] = field(default_factory=list)

    @property
    def blocks_per_s(self) -> float:
        """Between the first and the last fifth, where starts and tail do not count."""
        n = len(self.done_at)
        low, high = n // 5, n - 1 - n // 5
        if n < 50 or self.done_at[high] <= self.done_at[low]:
            return n / max(self.ended - self.began, 1e-9)
        return (high - low) / (self.done_at[high] - self.done_at[low])


@dataclass
class _Actor:
    stage: int
    speed: float
    lost_at: float
    block_from: float = 0.0


class Cluster:
    """A pool of GPUs that works off a graph of stages; the stages named first go first."""

    def __init__(self, loads: Sequence[StageLoad], gpus: float, faults: Faults, seed: int) -> None:
        """Raises UsageError for a stage that needs more GPUs than there are, or waits for an unknown one."""
        self._runs = [StageRun(load) for load in loads]
        self._faults, self._random = faults, random.Random(seed)
        self._free, self._all = float(gpus), float(gpus)
        self._queued = [load.blocks for load in loads]
        self._starting = [0] * len(loads)  # actors that load their engine
        self._open = {load.name for load in loads}
        self._ledger_free = [0.0] * len(loads)
        self._events: list[tuple[float, int, EventKind, _Actor]] = []
        self._count = 0
        self._began: set[int] = set()
        for load in loads:
            if load.gpus > gpus:
                raise UsageError(
                    f"stage {load.name} needs {load.gpus:g} GPUs for one actor, there are {gpus:g}"
                )
            if unknown := set(load.after) - self._open:
                raise UsageError(f"stage {load.name} waits for unknown stages: {sorted(unknown)}")

    def run(self) -> list[StageRun]:
        """All stages to their end. Raises UsageError if stages wait for each other."""
        self._fill(0.0)
        while self._events:
            now, _, kind, actor = heapq.heappop(self._events)
            getattr(self, f"_on_{kind}")(now, actor)
        if self._open:
            raise UsageError(f"stages wait for each other: {sorted(self._open)}")
        return self._runs

    def _fill(self, now: float) -> None:
        """Give free GPUs to ready stages, as many actors as there are blocks that no actor will take."""
        for stage, run in enumerate(self._runs):
            load = run.load
            if load.name not in self._open or set(load.after) & self._open:
                continue
            if not load.blocks:
                self._open.discard(load.name)
                return self._fill(now)
            # Each actor that starts will take one block.
            while self._queued[stage] > self._starting[stage] and self._free >= load.gpus:
                if stage not in self._began:
                    self._began.add(stage)
                    run.began = now
                self._free -= load.gpus
                self._starting[stage] += 1
                run.starting += load.start_seconds * load.gpus
                actor = _Actor(stage, self._lognormal(self._faults.speed_spread), 0.0)
                actor.lost_at = now + load.start_seconds + self._until_loss(load.gpus)
                self._push(now + load.start_seconds, "ready", actor)
        return None

    def _on_ready(self, now: float, actor: _Actor) -> None:
        self._starting[actor.stage] -= 1
        self._take(now, actor)

    def _on_done(self, now: float, actor: _Actor) -> None:
        run = self._runs[actor.stage]
        run.working += (now - actor.block_from) * run.load.gpus
        run.done_at.append(now)
        if len(run.done_at) == run.load.blocks:
            run.ended = now
            self._open.discard(run.load.name)
        self._take(now, actor)

    def _on_lost(self, now: float, actor: _Actor) -> None:
        run = self._runs[actor.stage]
        run.lost += (now - actor.block_from) * run.load.gpus
        run.redone += 1
        self._queued[actor.stage] += 1
        self._push(now + self._faults.replace_seconds, "replaced", actor)
        self._fill(now)

    def _on_replaced(self, now: float, actor: _Actor) -> None:
        self._free += self._runs[actor.stage].load.gpus
        self._fill(now)

    def _take(self, now: float, actor: _Actor) -> None:
        stage, load = actor.stage, self._runs[actor.stage].load
        if not self._queued[stage]:
            self._free += load.gpus
            self._fill(now)
            return
        self._queued[stage] -= 1
        begin = self._ledger_free[stage] = max(now, self._ledger_free[stage]) + self._faults.ledger_seconds
        actor.block_from = begin
        end = begin + load.block_seconds * actor.speed * self._block_factor()
        if actor.lost_at < end:
            self._push(max(begin, actor.lost_at), "lost", actor)
        else:
            self._push(end, "done", actor)

    def _block_factor(self) -> float:
        factor = self._lognormal(self._faults.block_spread)
        straggles = self._random.random() < self._faults.straggler_share
        return factor * (self._faults.straggler_factor if straggles else 1.0)

    def _lognormal(self, spread: float) -> float:
        """Of mean 1, so that a spread by itself adds no work."""
        return self._random.lognormvariate(-spread * spread / 2, spread) if spread else 1.0

    def _until_loss(self, gpus: float) -> float:
        rate = self._faults.losses_per_gpu_hour * gpus
        return self._random.expovariate(rate) * HOUR if rate else float("inf")

    def _push(self, at: float, kind: EventKind, actor: _Actor) -> None:
        self._count += 1  # equal times keep their order, whatever an actor compares like
        heapq.heappush(self._events, (at, self._count, kind, actor))
