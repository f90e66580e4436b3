"""The stages of the reference study against the plan's own arithmetic."""

from __future__ import annotations

import pytest

from infra.simulation.scaling import load_assumptions, reference_study, stage_loads
from sgpu.plan.estimate import estimate
from sgpu.plan.rates import load_rates

SETS = 1_000_000


def test_the_gpu_hours_are_those_of_the_plan() -> None:
    loads = stage_loads(SETS, 8, load_rates(), load_assumptions())
    hours = sum(load.blocks * load.block_seconds * load.gpus for load in loads) / 3600
    assert hours == pytest.approx(
        sum(work.hours for work in estimate(reference_study(SETS, 8), load_rates()))
    )


def test_a_large_judge_is_there_only_where_its_gpus_are() -> None:
    names = {
        gpus: [load.name for load in stage_loads(SETS, gpus, load_rates(), load_assumptions())]
        for gpus in (1, 4)
    }
    assert "judge llama-3.1-70b" in names[4] and "judge llama-3.1-70b" not in names[1]


def test_every_question_is_judged_once() -> None:
    for gpus in (1, 8):
        loads = stage_loads(SETS, gpus, load_rates(), load_assumptions())
        assert sum(load.rows for load in loads if load.name.startswith("judge")) == SETS


def test_all_stages_wait_for_the_answers() -> None:
    first, *others = stage_loads(SETS, 8, load_rates(), load_assumptions())
    assert first.after == () and {load.after for load in others} == {("sample",)}
