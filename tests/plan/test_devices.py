"""What the plan takes an actor to ask for, against what the stages ask Ray for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.plan.estimate import ENGINE_ROWS, HEAVY_ROWS, estimate, runs_on_cpu
from sgpu.plan.plan import make_plan
from sgpu.plan.rates import load_rates
from sgpu.plan.tables import as_text
from sgpu.runtime.progress import Progress
from sgpu.runtime.stage import Resources
from sgpu.stages.actors import engine_actors, light_actors
from sgpu.stages.entail import CLASSIFIER_BLOCK_ROWS
from sgpu.stages.hidden import MAX_BLOCK_ROWS
from sgpu.stages.run import Run
from sgpu.study.benchmark import Study
from sgpu.study.models import model_card


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
    run = Run(study, tmp_path, Progress(), address="auto")

    def asked(stage: str, engine: str) -> Resources:
        if stage in {"encode", "entail by cosine"}:
            return light_actors(run, "encode")
        name, gpus = ("transformers", 1.0) if stage == "hidden" else ("vllm", None)
        return engine_actors(run, "sample", model_card(engine), name, 1, gpus=gpus)

    timed = [work for work in estimate(study, load_rates())[0] if work.hours]
    assert {work.stage for work in timed} == {"sample", "judge", "hidden", "encode", "entail by cosine"}
    for work in timed:
        assert work.gpus == asked(work.stage, work.engine).num_gpus, work.stage
        if device == "cuda" and work.stage != "hidden":
            assert work.block_rows == asked(work.stage, work.engine).block_rows, work.stage
    assert runs_on_cpu(study) is not run.on_gpu()


def test_blocks_are_as_large_as_those_of_the_stages() -> None:
    assert HEAVY_ROWS == CLASSIFIER_BLOCK_ROWS == MAX_BLOCK_ROWS < ENGINE_ROWS


@pytest.mark.parametrize(
    ("models", "where"),
    [(["smollm2-135m-instruct"], "a CPU"), (["smollm2-135m-instruct", "qwen2.5-3b-instruct"], "GPUs")],
)
def test_an_open_device_is_planned_as_one_for_the_whole_study_and_said(
    models: list[str], where: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(f"models: {models}\ndatasets: [{{kind: worldfacts}}]\n")
    plan = make_plan(tmp_path / "s.yaml")
    assert {work.gpus == 0 for work in plan.work if work.hours} == {where == "a CPU"}
    assert f"planned on {where}." in " ".join(as_text(plan).split())
