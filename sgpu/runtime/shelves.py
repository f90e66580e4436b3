"""Which pools of a level run side by side, with how many actors: `sgpu.runtime.schedule` on real stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sgpu.errors import UsageError
from sgpu.runtime.schedule import Pool, cut_level
from sgpu.runtime.stage import Resources, Stage
from sgpu.storage.location import Location


@dataclass(frozen=True)
class Task:
    """What a pool has to do of one stage: the rows that the files of ``output`` lack, all but ``before``."""

    stage: Stage
    output: Location
    before: int = 0

    @property
    def name(self) -> str:
        return f"stage {self.stage.name} on {self.stage.partition}"

    @property
    def rows(self) -> int:
        """How many rows are due."""
        return self.stage.rows - self.before


class Pace(NamedTuple):
    """Minutes that one actor takes for a row of a stage, and until it has opened its engine."""

    row: float
    start: float


UNKNOWN_PACE = Pace(0.01, 1.0)


@dataclass(frozen=True)
class Site:
    """What shelves are planned from: GPUs that a run may hold, and how fast the actors of a stage are."""

    gpus: int
    pace: Callable[[Stage], Pace]


@dataclass(frozen=True)
class Crew:
    """The tasks of one pool and the actors that do them: ``fewest``, up to ``most`` where GPUs are idle."""

    tasks: tuple[Task, ...]
    fewest: int
    most: int

    @property
    def ask(self) -> Resources:
        """What each actor asks Ray for: blocks that fit for every task."""
        return resources_of(self.tasks)

    @property
    def name(self) -> str:
        return self.tasks[0].stage.pool_name

    @property
    def title(self) -> str:
        """Its name, with how many stages there are."""
        if len(self.tasks) == 1:
            return f"{self.tasks[0].stage.name} {self.tasks[0].stage.partition}"
        return f"{self.name} on {len(self.tasks)} cells"


def resources_of(tasks: Sequence[Task]) -> Resources:
    """Return what one actor of a pool asks Ray for, in blocks that fit for each of its stages."""
    asks = [task.stage.resources for task in tasks]
    most = max(asks, key=lambda ask: ask.actors or 0)
    return Resources(**{**vars(most), "block_rows": min(ask.block_rows for ask in asks)})


def arrange(pools: Sequence[Sequence[Task]], site: Site | None) -> list[list[Crew]]:
    """Return the shelves on which the pools run, each its crews, those with most GPUs an actor first.

    Pools without GPUs run on the first shelf; without a ``site`` each pool has a shelf of its own. Raises
    UsageError if an actor does not fit on the GPUs.
    """
    light = [tasks for tasks in pools if site is None or not resources_of(tasks).num_gpus]
    crews = [_fixed_crew(tasks) for tasks in light]
    if site is None or not (heavy := [tasks for tasks in pools if tasks not in light]):
        return [[crew] for crew in crews]
    planned = [_plan_pool(tasks, site) for tasks in heavy]
    tasks_of = dict(zip(map(id, planned), heavy, strict=True))
    try:
        shelves = cut_level(planned, site.gpus)
    except ValueError as error:
        raise UsageError(f"{error}; resources.gpus in the study sets how many it may hold") from None
    arranged = []
    for shelf in shelves:
        widest_first = sorted(zip(shelf.pools, shelf.actors, strict=True), key=lambda sized: -sized[0].gpus)
        arranged.append(
            [
                Crew(tuple(tasks_of[id(pool)]), fewest, max(fewest, pool.count_useful(site.gpus)))
                for pool, fewest in widest_first
            ]
        )
    arranged[0] += crews
    return arranged


def _fixed_crew(tasks: Sequence[Task]) -> Crew:
    actors = resources_of(tasks).actors or 1
    return Crew(tuple(tasks), actors, actors)


def _plan_pool(tasks: Sequence[Task], site: Site) -> Pool:
    ask, paces = resources_of(tasks), [site.pace(task.stage) for task in tasks]
    blocks = [
        pace.row * min(ask.block_rows, task.rows - first)
        for task, pace in zip(tasks, paces, strict=True)
        for first in range(0, task.rows, ask.block_rows)
    ]
    stage = tasks[0].stage
    return Pool(stage.name, stage.engine, ask.num_gpus, paces[0].start, tuple(blocks), ask.actors)
