"""The event loop against cases whose answer is known without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infra.simulation.events import Cluster, Faults, StageLoad
from sgpu.errors import UsageError

LOAD = StageLoad(name="sample", rows=1000, blocks=10, block_seconds=7.0, gpus=1, start_seconds=60.0)
ROUGH = Faults(
    speed_spread=0.1, block_spread=0.3, straggler_share=0.05, straggler_factor=5, losses_per_gpu_hour=2.0,
    replace_seconds=120,
)  # fmt: skip


def _run(*loads: StageLoad, gpus: float = 4, faults: Faults | None = None, seed: int = 0):
    return Cluster(loads, gpus, faults or Faults(), seed).run()


@pytest.mark.parametrize("gpus", [1, 3, 4, 10, 64])
def test_without_faults_the_time_is_start_plus_whole_rounds(gpus: int) -> None:
    [run] = _run(LOAD, gpus=gpus)
    assert run.ended == pytest.approx(60 + math.ceil(10 / gpus) * 7)


def test_an_actor_of_four_gpus_leaves_room_for_half_as_many_as_one_of_two() -> None:
    [wide] = _run(replace(LOAD, gpus=4), gpus=8)
    [narrow] = _run(replace(LOAD, gpus=2), gpus=8)
    assert wide.ended == pytest.approx(60 + 5 * 7)
    assert narrow.ended == pytest.approx(60 + 3 * 7)


def test_actors_of_a_quarter_share_a_gpu() -> None:
    [run] = _run(replace(LOAD, gpus=0.25, start_seconds=0), gpus=1)
    assert run.ended == pytest.approx(math.ceil(10 / 4) * 7)


def test_every_block_is_done_once_whatever_is_lost() -> None:
    [run] = _run(replace(LOAD, blocks=400, block_seconds=90), faults=ROUGH)
    assert len(run.done_at) == 400
    assert run.redone > 0 and run.lost > 0


def test_greedy_work_keeps_grahams_bound() -> None:
    """No list schedule takes longer than work / machines + the longest block (Graham 1966)."""
    faults = Faults(straggler_share=0.1, straggler_factor=10)
    [run] = _run(replace(LOAD, blocks=300, start_seconds=0), gpus=16, faults=faults)
    assert run.working / 16 <= run.ended <= run.working / 16 + 70


def test_stragglers_add_their_share_to_the_work() -> None:
    faults = Faults(straggler_share=0.02, straggler_factor=10)
    [run] = _run(replace(LOAD, blocks=20_000), faults=faults)
    # One block is 1 + 9 B with B ~ Bernoulli(0.02): mean 1.18, standard deviation 9 * 0.14.
    assert run.working / (20_000 * 7) == pytest.approx(1.18, abs=4 * 9 * 0.14 / math.sqrt(20_000))


def test_a_spread_alone_adds_no_work_on_average() -> None:
    [run] = _run(replace(LOAD, blocks=20_000, start_seconds=0), faults=Faults(block_spread=0.4))
    assert run.working == pytest.approx(20_000 * 7, rel=0.02)


def test_losses_come_as_often_as_their_rate_says() -> None:
    hours = 20_000 * 7 / 3600
    [run] = _run(
        replace(LOAD, blocks=20_000, start_seconds=0), faults=Faults(losses_per_gpu_hour=5, replace_seconds=1)
    )
    assert run.redone == pytest.approx(5 * hours, rel=4 / math.sqrt(5 * hours))


def test_the_ledger_bounds_the_rate_of_blocks() -> None:
    load = replace(LOAD, blocks=5000, block_seconds=1.0, start_seconds=0)
    [run] = _run(load, gpus=1000, faults=Faults(ledger_seconds=0.01))
    assert run.blocks_per_s == pytest.approx(100, rel=0.02)


def test_a_stage_begins_when_what_it_reads_is_done() -> None:
    judge = replace(LOAD, name="judge", after=("sample",))
    encode = replace(LOAD, name="encode", after=("judge",))
    sample, judged, encoded = _run(LOAD, judge, encode, faults=ROUGH)
    assert sample.ended <= judged.began <= judged.ended <= encoded.began


def test_free_gpus_of_a_tail_go_to_the_next_ready_stage() -> None:
    other = replace(LOAD, name="other")
    first, second = _run(LOAD, other, gpus=10, faults=Faults())
    assert first.ended == second.began == pytest.approx(67)
    first, second = _run(replace(LOAD, blocks=11), other, gpus=10)
    assert second.began < first.ended


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    load = replace(LOAD, blocks=100)
    [one], [same], [other] = (_run(load, faults=ROUGH, seed=seed) for seed in (1, 1, 2))
    assert one.done_at == same.done_at
    assert one.done_at != other.done_at


def test_more_gpus_are_never_slower_without_faults() -> None:
    ends = [_run(replace(LOAD, blocks=97), gpus=gpus)[0].ended for gpus in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert ends == sorted(ends, reverse=True)


def test_a_stage_without_blocks_is_done_at_once() -> None:
    empty, judge = _run(replace(LOAD, blocks=0), replace(LOAD, name="judge", after=("sample",)))
    assert judge.began == 0 and empty.done_at == []


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        ([replace(LOAD, gpus=8)], "sample needs 8 GPUs for one actor, there are 4"),
        ([replace(LOAD, after=("nobody",))], r"waits for unknown stages: \['nobody'\]"),
        ([replace(LOAD, name=a, after=(b,)) for a, b in ("ab", "ba")], r"wait for each other: \['a', 'b'\]"),
    ],
)
def test_stages_that_can_never_run_are_refused(loads: list[StageLoad], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _run(*loads)
