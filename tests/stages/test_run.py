"""What a run asks for: its device, its threads, its working folder, and nodes that see its output."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sgpu.errors import StageError, UsageError
from sgpu.runtime import cluster
from sgpu.runtime.cluster import check_shared
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import ray_session
from sgpu.stages import run as run_module
from sgpu.stages.run import Run, open_run
from sgpu.storage.location import Location
from sgpu.storage.store import Store
from sgpu.study.benchmark import Study
from sgpu.study.models import MODELS
from sgpu.study.resolve import Resolved


def run_on(tmp_path: Path, device: str, address: str | None = None) -> Run:
    content = {"models": ["m"], "datasets": [{"kind": "worldfacts"}], "resources": {"device": device}}
    return Run(Study.model_validate(content), tmp_path, Progress(), address=address)


@pytest.fixture(autouse=True)
def eight_cores_and_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(run_module, "available_cores", lambda: 8)


def on_a_machine(monkeypatch: pytest.MonkeyPatch, gpu: bool, cpu_dtype: str = "float32") -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    for module in ("sgpu.study.resolve", "sgpu.stages.run"):
        monkeypatch.setattr(f"{module}.cpu_dtype", lambda: cpu_dtype)


@pytest.mark.parametrize("gpu", [True, False])
def test_an_open_device_is_that_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    on_a_machine(monkeypatch, gpu)
    assert run_on(tmp_path, "auto").on_gpu() is gpu


@pytest.mark.parametrize(("first", "later"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_a_later_command_computes_in_what_the_first_one_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, later: str
) -> None:
    on_a_machine(monkeypatch, gpu=False, cpu_dtype=first)
    begun = run_on(tmp_path, "auto").resolved
    assert begun == Resolved("cpu", first, first)
    on_a_machine(monkeypatch, gpu=False, cpu_dtype=later)
    terminal = io.StringIO()
    continued = replace(run_on(tmp_path, "auto"), progress=Progress(Console(file=terminal)))
    assert continued.resolved == begun
    assert ("continuing in bfloat16" in terminal.getvalue()) == (first == "bfloat16")
    assert run_on(tmp_path / "another", "auto").resolved == Resolved("cpu", later, later)


def test_a_device_that_the_study_names_counts_before_the_recorded_one_and_the_format_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_machine(monkeypatch, gpu=True)
    begun = run_on(tmp_path, "auto").resolved
    assert begun == Resolved("cuda", "bfloat16", "auto")
    on_a_machine(monkeypatch, gpu=False)
    with pytest.raises(UsageError, match=r"--set resources\.device=cpu"):
        run_on(tmp_path, "auto").resolved  # noqa: B018
    assert run_on(tmp_path, "cpu").resolved == Resolved("cpu", "bfloat16", "auto")


@pytest.mark.parametrize("named", ["address", "environment"])
def test_an_open_device_is_refused_on_a_cluster_whatever_the_head_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    on_a_machine(monkeypatch, gpu=True)
    address = "auto" if named == "address" else None
    if address is None:
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    run = run_on(tmp_path, "auto", address)
    for ask in (run.on_gpu, lambda: run.light_resources(1), lambda: run.engine_resources("vllm", 1, None)):
        with pytest.raises(UsageError, match=r"--set resources\.device=cuda"):
            ask()


def test_on_a_cluster_the_study_decides_not_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, gpu=False)
    assert run_on(tmp_path, "cuda", "auto").engine_resources("vllm", 1, None, 4).num_gpus == 4
    on_a_machine(monkeypatch, gpu=True)
    assert run_on(tmp_path, "cpu", "auto").engine_resources("vllm", 1, None).num_gpus == 0


def test_rules_ask_for_no_gpu(tmp_path: Path) -> None:
    run = run_on(tmp_path, "cuda", "auto")
    assert run.rule_resources(3) == replace(run.light_resources(3), num_gpus=0.0)
    assert run.light_resources(3).num_gpus > 0


@pytest.mark.parametrize(
    ("device", "address", "model", "memory", "rows", "engines"),
    [
        ("cpu", None, "smollm2-135m-instruct", 64, 400, 6),  # 64 rows each
        ("cpu", None, "smollm2-135m-instruct", 16, 4000, 2),  # as memory allows
        ("cpu", None, "smollm2-135m-instruct", 64, 4000, 8),  # one per core
        ("cpu", None, "smollm2-135m-instruct", 4, 20, 1),
        ("cpu", None, "qwen2.5-3b-instruct", 64, 4000, 1),
        ("cuda", None, "smollm2-135m-instruct", 64, 4000, 1),
        ("cpu", "auto", "smollm2-135m-instruct", 64, 4000, 1),
    ],
)
def test_engines_of_a_small_model_share_the_cores_of_a_cpu_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    device: str, address: str | None, model: str, memory: int, rows: int, engines: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(run_module, "memory_bytes", lambda: memory * 2**30)
    run = run_on(tmp_path, device, address)
    assert run.engines_of(MODELS[model], "vllm", rows) == engines


def test_actors_share_this_machine_s_cores_but_not_a_head_s(tmp_path: Path) -> None:
    here = run_on(tmp_path, "cpu")
    assert [here.light_resources(n).threads for n in (1, 4, 16)] == [8, 2, 1]
    for device, threads in (("cpu", 1), ("cuda", 4)):
        there = run_on(tmp_path, device, "10.0.0.1:6379")
        assert {there.light_resources(n).threads for n in (1, 4, 16)} == {threads}
        assert {there.engine_resources("vllm", n, None).threads for n in (1, 4, 16)} == {threads}


def test_machines_that_share_a_cache_do_not_share_a_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path))
    monkeypatch.setattr(run_module, "check_writable", lambda place: None)
    study = run_on(tmp_path, "cpu").study
    folders = []
    for host in ("one", "two", "one"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        folders.append(open_run(study, Location.of("s3://bucket/place")).out)
    assert folders[0] == folders[2] != folders[1]
    assert {folder.parent for folder in folders} == {tmp_path / "working"}


@pytest.fixture(scope="module")
def this_node() -> object:
    """A local Ray, whose one node stands in for others: on one machine all nodes see the same files."""
    with ray_session():
        import ray

        yield ray.get_runtime_context().get_node_id()


def test_a_node_is_asked_once_whether_it_sees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_node: str
) -> None:
    monkeypatch.setattr(cluster, "_others", lambda: {this_node: "worker-1"})
    seen: set[str] = set()
    check_shared(tmp_path, seen)
    assert seen == {this_node} and list(tmp_path.iterdir()) == []
    check_shared(tmp_path, seen, look=lambda path: False)


def test_a_node_that_does_not_see_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_node: str
) -> None:
    monkeypatch.setattr(cluster, "_others", lambda: {this_node: "worker-1"})
    seen: set[str] = set()
    with pytest.raises(UsageError, match=rf"node worker-1 .* does not see {tmp_path}.*s3://"):
        check_shared(tmp_path, seen, look=lambda path: False)
    assert not seen and list(tmp_path.iterdir()) == []


def test_a_node_that_is_lost_meanwhile_is_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_node: str
) -> None:
    monkeypatch.setattr(cluster, "_others", lambda: {"0" * 56: "gone", this_node: "worker-1"})
    seen: set[str] = set()
    check_shared(tmp_path, seen)
    assert seen == {this_node}


class FakeStage:
    """As much of a stage as a run looks at before it hands it on."""

    pool = "fake"

    def published(self, store: Store) -> None:
        """Nothing is."""


def test_a_cluster_that_came_with_the_work_without_the_folder_is_the_reason_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_node: str
) -> None:
    nodes: dict[str, str] = {}
    monkeypatch.setattr(cluster, "_others", lambda: nodes)
    monkeypatch.setattr(cluster, "_is_there", lambda path: False)

    def fails(*_: object) -> None:
        nodes[this_node] = "worker-1"
        raise StageError("rows lost")

    monkeypatch.setattr(run_module, "run_stages", fails)
    with pytest.raises(UsageError, match="node worker-1 of the cluster does not see"):
        run_on(tmp_path, "cpu", "auto").run_stage(FakeStage())  # type: ignore[arg-type]
    nodes.clear()
    with pytest.raises(StageError, match="rows lost"):  # here, without a cluster, nobody is asked
        run_on(tmp_path, "cpu").run_stage(FakeStage())  # type: ignore[arg-type]
