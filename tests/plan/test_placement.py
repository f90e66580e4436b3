"""Placement: what a stage asks for, against the stages' own requests, and the time on given GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.plan.cells import PlanModel, PlanStudy, Work
from sgpu.plan.estimate import LIGHT_GPUS, estimate
from sgpu.plan.from_study import plan_study
from sgpu.plan.plan import Placement, place, plan_of
from sgpu.plan.rates import load_rates
from sgpu.plan.tables import plain_text
from sgpu.runtime.progress import Progress
from sgpu.stages.run import Run
from sgpu.study.benchmark import Study
from sgpu.study.models import model_card
from tests.plan.paper_grid import paper_study

RATES = load_rates()


def placed(stage: str, gpus: float, actors: int, available: int, runs: int = 1) -> Placement:
    work = Work(
        stage=stage,
        model="m",
        dataset="d",
        answered_by="m",
        calls=1.0,
        hours=8.0,
        gpus=gpus,
        start_minutes=3.0,
    )
    (found,) = place(PlanStudy(name="s", cells=(), actors={stage: actors}), [work] * runs, RATES, available)
    return found


def test_engines_and_light_stages_ask_for_what_the_stages_ask(tmp_path: Path) -> None:
    study = Study.model_validate(
        {"models": ["m"], "datasets": [{"kind": "worldfacts"}], "resources": {"device": "cuda"}}
    )
    run = Run(study, tmp_path, Progress())
    assert run.light_resources(1).num_gpus == LIGHT_GPUS
    assert run.engine_resources("vllm", 2, None, 4).num_gpus == 4
    found = {one.model: one.gpus for one in place(paper_study(), _work(), RATES, 8)}
    assert (found["llama-70b"], found["llama-8b"], found["deberta"]) == (4, 1, LIGHT_GPUS)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_plan_and_a_run_on_a_cluster_work_on_the_device_that_the_study_names(
    device: str, tmp_path: Path
) -> None:
    study = Study.model_validate(
        {
            "models": ["smollm2-135m-instruct", "qwen2.5-3b-instruct"],  # one is packaged, one is not
            "datasets": [{"kind": "worldfacts"}],
            "judge": {
                "name": "llm",
                "model": "llama-3.1-8b-instruct",
                "test_model": "llama-3.1-70b-instruct",
            },
            "methods": ["sgpu", "sep"],
            "resources": {"device": device},
        }
    )
    run, planned = Run(study, tmp_path, Progress(), address="auto"), plan_study(study, RATES)
    asked = {
        "sample": lambda model: run.engine_resources("vllm", 1, None, model_card(model).tensor_parallel_size),
        "judge": lambda model: run.engine_resources("vllm", 1, None, model_card(model).tensor_parallel_size),
        "hidden": lambda model: run.engine_resources("transformers", 1, None),
        "encode": lambda model: run.light_resources(1),
        "entail": lambda model: run.light_resources(1),
    }
    found = [work for work in estimate(planned, RATES) if work.hours]
    assert {work.stage for work in found} == asked.keys()
    for work in found:
        assert work.gpus == asked[work.stage](work.model).num_gpus, work.stage
        assert work.on_cpu is not run.on_gpu()
    assert planned.notes == ()


@pytest.mark.parametrize(
    ("models", "where"),
    [(["smollm2-135m-instruct"], "a CPU"), (["smollm2-135m-instruct", "qwen2.5-3b-instruct"], "GPUs")],
)
def test_an_open_device_is_planned_as_one_for_the_whole_study_and_said(models: list[str], where: str) -> None:
    study = Study.model_validate({"models": models, "datasets": [{"kind": "worldfacts"}]})
    planned = plan_study(study, RATES)
    assert {work.on_cpu for work in estimate(planned, RATES) if work.hours} == {where == "a CPU"}
    assert f"planned on {where}." in plain_text(plan_of(planned, RATES, 8))


def _work() -> list[Work]:
    return estimate(paper_study(), RATES)


def test_time_falls_with_the_gpus_that_actors_occupy() -> None:
    # 8 GPU-hours on 2 x 4 GPUs and one start of 3 minutes
    found = placed("judge", 4.0, actors=2, available=8)
    assert (found.usable, found.wall_hours) == (8, pytest.approx(1.05))
    assert found.start_hours == pytest.approx(0.4)


def test_actors_beyond_the_gpus_wait() -> None:
    assert placed("judge", 4.0, actors=4, available=9).usable == 8


def test_a_lone_actor_on_a_part_of_a_gpu_has_its_full_speed() -> None:
    assert placed("encode", 0.25, actors=1, available=8).wall_hours == pytest.approx(8.05)
    assert placed("encode", 0.25, actors=8, available=8).usable == 2


def test_each_run_starts_its_actors_anew() -> None:
    # 3 x 8 GPU-hours on one GPU and three starts
    assert placed("sample", 1.0, actors=1, available=1, runs=3).wall_hours == pytest.approx(24.15)


def test_idle_gpus_are_named() -> None:
    assert "uses 1 of 8 GPUs" in placed("sample", 1.0, actors=1, available=8).problem


def test_an_actor_that_does_not_fit_cannot_run() -> None:
    found = placed("judge", 4.0, actors=1, available=2)
    assert (found.usable, found.wall_hours) == (0, 0) and "needs 4 GPUs, there are 2" in found.problem


def test_room_for_keys_and_values_is_what_weights_leave() -> None:
    # (80 x 0.9 - 131.5 / 4) GiB x 4 GPUs / 320 KiB = 512,819 tokens
    found = next(one for one in place(paper_study(), _work(), RATES, 8) if one.model == "llama-70b")
    assert found.cache_tokens == pytest.approx(512_819, abs=1)


def test_weights_that_do_not_fit_are_named() -> None:
    model = PlanModel(name="m", parameters=70.6, memory_gib=131.5)
    study = PlanStudy(name="s", cells=(), entailment="llm", entailment_model=model)
    work = Work(stage="entail", model="m", dataset="d", answered_by="a", calls=1.0, hours=1.0, gpus=1.0)
    (found,) = place(study, [work], RATES, 8)
    assert "do not fit into 80 GiB" in found.problem
