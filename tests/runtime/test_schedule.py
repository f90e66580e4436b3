"""Shelves and their replay: pools made by hand, and the paper's study against its gates."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from sgpu.plan.plan import CostPlan, make_plan
from sgpu.runtime.schedule import Pool, replay, shelves
from tests.plan.test_plan import STUDIES

# Each pool's rate may be wrong by a factor in [0.5, 2], in as many draws.
SEEDS = range(20)


@pytest.fixture(scope="module")
def paper() -> CostPlan:
    """Return the shipped study with VizWiz at full size; without its raw files the study does not start."""
    return make_plan(STUDIES / "paper.yaml", ["datasets.3.path=vizwiz"])


def pool(stage: str, blocks: int, minutes: float = 1.0, gpus: float = 1.0, start: float = 0.0) -> Pool:
    return Pool(stage, "m", gpus, start, (minutes,) * blocks)


def test_pools_of_a_level_share_a_shelf_and_end_together() -> None:
    (shelf,) = shelves([pool("judge", 60, start=1), pool("hidden", 20, start=1)], 4)
    assert shelf.actors == (3, 1) and shelf.minutes == pytest.approx(21)


def test_levels_run_in_turn() -> None:
    planned = shelves([pool("entail", 4), pool("sample", 4), pool("entail by cosine", 4)], 2)
    assert [shelf.pools[0].stage for shelf in planned] == ["sample", "entail", "entail by cosine"]


def test_pools_that_do_not_fit_side_by_side_run_in_turn() -> None:
    planned = shelves([pool("judge", 8, gpus=4), pool("hidden", 8)], 4)
    assert [shelf.actors for shelf in planned] == [(1,), (4,)]


def test_a_pool_has_no_more_actors_than_blocks() -> None:
    assert shelves([pool("sample", 3)], 8)[0].actors == (3,)


def test_an_actor_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="one actor of judge m needs 4 GPUs, there are 2"):
        shelves([pool("judge", 8, gpus=4)], 2)


def test_a_replay_counts_starts_blocks_and_idle_gpus() -> None:
    # Two actors start for a minute and take 2 and 3 blocks; one GPU of three waits.
    played = replay(shelves([pool("sample", 5, start=1)], 2), 2)
    assert (played.minutes, played.starts, played.work) == ((4.0,), (2,), 5.0)
    assert played.use == pytest.approx(5 / 8)
    assert replay([], 2).use == 0


@pytest.mark.parametrize(("elastic", "minutes", "starts"), [(False, 40, 2), (True, 25.5, 3)])
def test_idle_gpus_go_to_the_pool_with_work_left(elastic: bool, minutes: float, starts: int) -> None:
    # Hidden takes 39 minutes of work in place of 9: when judge ends, its GPU shares the 30 that are left.
    planned = shelves([pool("judge", 18, 0.5, start=1), pool("hidden", 18, 0.5, start=1)], 2)
    played = replay(planned, 2, {"hidden m": 39 / 9}, elastic)
    assert played.wall == pytest.approx(minutes, abs=3) and played.starts == (starts,)


def test_a_pool_worth_less_than_two_starts_gets_no_further_actor() -> None:
    planned = shelves([pool("judge", 10, start=8), pool("hidden", 10, start=8)], 2)
    assert replay(planned, 2, {"hidden m": 2}).starts == (2,)


def test_no_replay_beats_the_bound(paper: CostPlan) -> None:
    for gpus in (8, 16, 32, 64):
        played = replay(shelves(paper.pools, gpus), gpus)
        assert played.wall > played.bound > played.work / gpus


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize(("gpus", "use"), [(8, 0.85), (16, 0.80), (32, 0.75), (64, 0.70)])
def test_the_papers_study_keeps_the_gpus_busy(paper: CostPlan, gpus: int, use: float, elastic: bool) -> None:
    assert replay(shelves(paper.pools, gpus), gpus, elastic=elastic).use >= use


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("gpus", [8, 16])
def test_wrong_rates_cost_less_than_a_third(paper: CostPlan, gpus: int, elastic: bool) -> None:
    planned, ratios = shelves(paper.pools, gpus), []
    for seed in SEEDS:
        generator = random.Random(seed)
        factors = {pool.name: 2 ** generator.uniform(-1, 1) for pool in paper.pools}
        true_pools = [pool.scale(factors[pool.name]) for pool in paper.pools]
        best = replay(shelves(true_pools, gpus), gpus, elastic=elastic)
        ratios.append(replay(planned, gpus, factors, elastic).wall / best.wall)
    assert mean(ratios) < 1.3
