"""The schedule of a study: which pools of actors run side by side, with how many actors, for how long.

A pool is all the work of one stage with one engine, over all cells. Pools whose inputs are published run side
by side on a shelf; shelves run one after the other. So each actor starts its engine once, and no pool waits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

# Stages by level. A stage reads only what earlier levels have published.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("questions",),
    ("sample",),
    ("judge", "agreement", "encode", "hidden", "embed", "entail"),
    ("entail by cosine",),  # its threshold is fitted on labels
    ("fit",),
    ("predict", "evaluate"),
    ("sensitivity",),
    ("report",),
)
LEVEL_OF = {stage: level for level, stages in enumerate(LEVELS) for stage in stages}
ROUNDING = 1e-9
WORTH_STARTS = 2  # a pool with less work left than this many starts gets no further actor


@dataclass(frozen=True)
class Pool:
    """All blocks of one stage with one engine or encoder; ``gpus`` and ``start`` are those of one actor.

    ``blocks`` and ``start`` are in minutes of one actor. ``fixed`` is a number of actors that the schedule
    has to keep.
    """

    stage: str
    engine: str
    gpus: float
    start: float
    blocks: tuple[float, ...]
    fixed: int | None = None

    @property
    def name(self) -> str:
        return f"{self.stage} {self.engine}"

    @cached_property
    def work(self) -> float:
        """Minutes of one actor, without its start."""
        return sum(self.blocks)

    def count_actors(self, minutes: float) -> int:
        """Return the fewest actors that end within so many minutes, blocks taken as equal."""
        if self.fixed is not None:
            return self.fixed
        in_turn = math.floor((minutes - self.start) * len(self.blocks) / self.work + ROUNDING)
        return math.ceil(len(self.blocks) / max(1, in_turn))

    def count_useful(self, gpus: int) -> int:
        """Return the most actors that are worth their start and fit on so many GPUs."""
        worth = self.work // (WORTH_STARTS * self.start) if self.start else len(self.blocks)
        return int(min(worth, gpus // self.gpus, len(self.blocks))) if self.fixed is None else self.fixed

    def scale(self, factor: float) -> Pool:
        """Return the same pool with each block ``factor`` times as long."""
        return replace(self, blocks=tuple(block * factor for block in self.blocks))


@dataclass(frozen=True)
class Shelf:
    """Pools that run side by side, how many actors each has, and the minutes until all have ended."""

    pools: tuple[Pool, ...]
    actors: tuple[int, ...]
    minutes: float


@dataclass(frozen=True)
class Replay:
    """Shelves played through: minutes and engine starts of each, from the first start to the last row."""

    gpus: int
    shelves: tuple[Shelf, ...]
    minutes: tuple[float, ...]
    starts: tuple[int, ...]
    work: float  # GPU-minutes, without starts

    @property
    def wall(self) -> float:
        return sum(self.minutes)

    @property
    def held_hours(self) -> float:
        """GPU-hours that are paid for, starts and idle GPUs included."""
        return self.gpus * self.wall / 60

    @property
    def use(self) -> float:
        """The share of the GPU time held that is work."""
        return self.work / (self.gpus * self.wall) if self.wall else 0.0

    @property
    def bound(self) -> float:
        """Minutes that no schedule by levels beats: each GPU starts once a level, then works all along."""
        return sum(
            max(
                sum(pool.work * pool.gpus for pool in level) / self.gpus + min(pool.start for pool in level),
                max(pool.start + max(pool.blocks) for pool in level),
            )
            for level in _split_by_level(pool for shelf in self.shelves for pool in shelf.pools)
        )


def shelves(pools: Iterable[Pool], gpus: int) -> list[Shelf]:
    """Return the shelves of all levels in turn.

    Raises ValueError if an actor needs more GPUs than there are.
    """
    return [shelf for level in _split_by_level(pools) for shelf in cut_level(level, gpus)]


def _split_by_level(pools: Iterable[Pool]) -> list[list[Pool]]:
    """Return the pools with work, level by level."""
    levels: list[list[Pool]] = [[] for _ in LEVELS]
    for pool in pools:
        if pool.work:
            levels[LEVEL_OF[pool.stage]].append(pool)
    return [level for level in levels if level]


def cut_level(pools: Sequence[Pool], gpus: int) -> list[Shelf]:
    """Return the quickest cut of a level's pools, largest first, into shelves. Raises as `shelves`."""
    ordered = sorted(pools, key=lambda pool: -pool.work * pool.gpus)
    # The quickest shelves for the pools from each position on, from the end backwards.
    quickest: list[list[Shelf]] = [[] for _ in range(len(ordered) + 1)]
    for first in reversed(range(len(ordered))):
        ends = range(first + 1, len(ordered) + 1)
        shelf_to = {end: fill_shelf(ordered[first:end], gpus) for end in ends}
        choices = [[shelf, *quickest[end]] for end, shelf in shelf_to.items() if shelf]
        if not choices:
            pool = ordered[first]
            number = pool.fixed or 1
            actors = "one actor" if number == 1 else f"{number} actors"
            needs = f"need{'s' if number == 1 else ''} {number * pool.gpus:g} GPUs"
            raise ValueError(f"{actors} of {pool.name} {needs}, there are {gpus}")
        quickest[first] = min(choices, key=lambda choice: sum(shelf.minutes for shelf in choice))
    return quickest[0]


def fill_shelf(pools: Sequence[Pool], gpus: int) -> Shelf | None:
    """Return the shelf on which these pools end soonest; None if one actor of each does not fit."""

    def count_gpus(minutes: float) -> float:
        return sum(pool.gpus * pool.count_actors(minutes) for pool in pools)

    low = max(pool.start + pool.work / len(pool.blocks) for pool in pools)
    high = max(pool.start + pool.work for pool in pools)
    if count_gpus(high) > gpus + ROUNDING:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if count_gpus(middle) <= gpus + ROUNDING else (middle, high)
    return Shelf(tuple(pools), tuple(pool.count_actors(high) for pool in pools), high)


def replay(
    planned: Sequence[Shelf], gpus: int, factors: Mapping[str, float] | None = None, elastic: bool = True
) -> Replay:
    """Play the shelves: an actor starts, then takes the next block of its pool until none is left.

    ``factors`` stretch the blocks of a pool beyond what was planned. ``elastic``: GPUs that no actor holds go
    to the pool of the shelf that needs them most, on whatever nodes they are.
    """
    played = [_Play(shelf, gpus, factors or {}) for shelf in planned]
    ends = tuple(play.run(elastic) for play in played)
    starts, work = tuple(play.starts for play in played), sum(play.work for play in played)
    return Replay(gpus, tuple(planned), ends, starts, work)


class _Play:
    """One shelf in play: the blocks that are left, and when each actor is next free."""

    def __init__(self, shelf: Shelf, gpus: int, factors: Mapping[str, float]) -> None:
        self._pools = [pool.scale(factors.get(pool.name, 1.0)) for pool in shelf.pools]
        self._left = [pool.work for pool in self._pools]
        self._actors = [0] * len(self._pools)
        self._ready: list[tuple[float, int]] = []
        self._free = float(gpus)
        self.starts = 0
        self.work = sum(pool.work * pool.gpus for pool in self._pools)  # GPU-minutes
        for index, actors in enumerate(shelf.actors):
            for _ in range(actors):
                self._start(index, 0.0)

    def run(self, elastic: bool) -> float:
        """Return the minutes until the last actor has ended."""
        now, blocks = 0.0, [iter(pool.blocks) for pool in self._pools]
        while self._ready:
            while elastic and (needy := self._find_needy()) is not None:
                self._start(needy, now)
            now, index = heapq.heappop(self._ready)
            if (block := next(blocks[index], None)) is not None:
                self._left[index] -= block
                heapq.heappush(self._ready, (now + block, index))
            else:
                self._actors[index] -= 1
                self._free += self._pools[index].gpus
        return now

    def _start(self, index: int, now: float) -> None:
        self.starts += 1
        self._actors[index] += 1
        self._free -= self._pools[index].gpus
        heapq.heappush(self._ready, (now + self._pools[index].start, index))

    def _find_needy(self) -> int | None:
        """Return the pool with the most work left per actor, of those for which one more is worth it."""
        left = [left / max(1, actors) for left, actors in zip(self._left, self._actors, strict=True)]
        needy = [
            index
            for index, pool in enumerate(self._pools)
            if pool.gpus <= self._free + ROUNDING and left[index] > WORTH_STARTS * pool.start + ROUNDING
        ]
        return max(needy, key=lambda index: left[index], default=None)
