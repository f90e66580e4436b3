"""Which pools run side by side, and with how many actors, when GPUs are scarce or plenty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from sgpu.errors import UsageError
from sgpu.runtime.shelves import Crew, Pace, Site, Task, arrange
from sgpu.runtime.stage import Resources
from sgpu.storage.store import Store

MINUTES = {"small": 0.5, "large": 1.0, "rule": 1.0}


@pytest.fixture
def pools(tmp_path: Path, toy: ModuleType) -> list[list[Task]]:
    """Three pools of 40 rows in blocks of 5: with one GPU an actor, with two, and with none."""
    one = toy.stage(Store(tmp_path), tmp_path)
    return [
        [Task(replace(one, engine=engine, resources=Resources(None, num_gpus=gpus, block_rows=5)), tmp_path)]
        for engine, gpus in (("small", 1.0), ("large", 2.0), ("rule", 0.0))
    ]


def arranged(pools: list[list[Task]], gpus: int) -> list[list[tuple[str, int, int]]]:
    site = Site(gpus, lambda stage: Pace(MINUTES[stage.engine], 2.0))
    return [[(name(crew), crew.fewest, crew.most) for crew in shelf] for shelf in arrange(pools, site)]


def name(crew: Crew) -> str:
    return crew.tasks[0].stage.engine


def test_pools_share_the_gpus_the_widest_actors_first(pools: list[list[Task]]) -> None:
    assert arranged(pools, 3) == [[("large", 1, 1), ("small", 1, 3), ("rule", 1, 1)]]


def test_pools_that_do_not_fit_side_by_side_run_in_turn(pools: list[list[Task]]) -> None:
    assert arranged(pools, 2) == [[("large", 1, 1), ("rule", 1, 1)], [("small", 2, 2)]]


def test_a_stage_keeps_the_number_that_it_is_given(pools: list[list[Task]]) -> None:
    stage = pools[0][0].stage
    pools[0] = [replace(pools[0][0], stage=replace(stage, resources=replace(stage.resources, actors=4)))]
    assert ("small", 4, 4) in [crew for shelf in arranged(pools, 8) for crew in shelf]
    with pytest.raises(UsageError, match=r"4 actors of toy small need 4 GPUs, there are 3; resources\.gpus"):
        arranged(pools, 3)


def test_without_gpus_each_pool_has_a_job_of_its_own(pools: list[list[Task]]) -> None:
    assert [[name(crew) for crew in shelf] for shelf in arrange(pools, None)] == [
        ["small"],
        ["large"],
        ["rule"],
    ]
