"""What the actors of a stage ask for: GPUs, threads, and how many of them share a CPU machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.runtime.progress import Progress
from sgpu.runtime.stage import Resources
from sgpu.stages import actors
from sgpu.stages.actors import engine_actors, light_actors, rule_actors
from sgpu.stages.run import Run
from sgpu.study.benchmark import Study
from sgpu.study.models import model_card
from sgpu.study.specs import ActorStage


@pytest.fixture(autouse=True)
def eight_cores_and_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(actors, "available_cores", lambda: 8)


def run_on(tmp_path: Path, device: str, address: str | None = None) -> Run:
    content = {"models": ["m"], "datasets": [{"kind": "worldfacts"}], "resources": {"device": device}}
    return Run(Study.model_validate(content), tmp_path, Progress(), address=address)


def engines(
    run: Run, stage: ActorStage = "sample", model: str = "llama-3.1-8b-instruct", rows: int = 100
) -> Resources:
    return engine_actors(run, stage, model_card(model), "vllm", rows)


def test_on_a_cluster_the_study_decides_not_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert engines(run_on(tmp_path, "cuda", "auto"), model="llama-3.1-70b-instruct").num_gpus == 4
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert engines(run_on(tmp_path, "cpu", "auto")).num_gpus == 0


def test_rules_ask_for_no_gpu(tmp_path: Path) -> None:
    run = run_on(tmp_path, "cuda", "auto")
    assert rule_actors(run, "judge") == replace(light_actors(run, "judge"), num_gpus=0.0, actors=1)
    assert light_actors(run, "judge").num_gpus > 0


def test_on_gpus_the_schedule_decides_how_many_actors_a_stage_has_unless_the_study_does(
    tmp_path: Path,
) -> None:
    run = run_on(tmp_path, "cuda", "auto")
    run.study.resources.actors["judge"] = 3
    assert (engines(run).actors, engines(run, "judge").actors, light_actors(run, "encode").actors) == (
        None,
        3,
        None,
    )


@pytest.mark.parametrize(
    ("device", "address", "model", "memory", "rows", "number"),
    [
        ("cpu", None, "smollm2-135m-instruct", 64, 400, 6),  # 64 rows each
        ("cpu", None, "smollm2-135m-instruct", 16, 4000, 2),  # as memory allows
        ("cpu", None, "smollm2-135m-instruct", 64, 4000, 8),  # one per core
        ("cpu", None, "smollm2-135m-instruct", 4, 20, 1),
        ("cpu", None, "qwen2.5-3b-instruct", 64, 4000, 1),
        ("cpu", "auto", "smollm2-135m-instruct", 64, 4000, 1),
    ],
)
def test_engines_of_a_small_model_share_the_cores_of_a_cpu_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    device: str, address: str | None, model: str, memory: int, rows: int, number: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(actors, "memory_bytes", lambda: memory * 2**30)
    run = run_on(tmp_path, device, address)
    assert engines(run, model=model, rows=rows).actors == number


def test_actors_share_this_machine_s_cores_but_not_a_head_s(tmp_path: Path) -> None:
    here = run_on(tmp_path, "cpu")
    for number, threads in ((1, 8), (4, 2), (16, 1)):
        here.study.resources.actors["encode"] = number
        assert light_actors(here, "encode").threads == threads
    for device, threads in (("cpu", 1), ("cuda", 4)):
        there = run_on(tmp_path, device, "10.0.0.1:6379")
        assert light_actors(there, "encode").threads == engines(there).threads == threads
