"""What a run asks for: its device, its GPUs, its working folder, and nodes that see its output."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from sgpu.study.benchmark import Study
from sgpu.study.resolve import Resolved


def run_on(tmp_path: Path, device: str, address: str | None = None, gpus: int | str = "auto") -> Run:
    resources = {"device": device, "gpus": gpus}
    content = {"models": ["m"], "datasets": [{"kind": "worldfacts"}], "resources": resources}
    return Run(Study.model_validate(content), tmp_path, Progress(), address=address)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


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
    for ask in (run.on_gpu, run.site):
        with pytest.raises(UsageError, match=r"--set resources\.device=cuda"):
            ask()


def test_a_study_says_how_many_gpus_it_may_hold_or_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "ray_session", nullcontext)
    for up, given, found in ((8, "auto", 8), (8, 4, 4), (0, 16, 16)):
        monkeypatch.setattr("ray.cluster_resources", lambda up=up: {"CPU": 8.0, "GPU": up})
        site = run_on(tmp_path, "cuda", gpus=given).site()
        assert site is not None and site.gpus == found
    with pytest.raises(UsageError, match=r"--set resources\.gpus=N"):
        run_on(tmp_path, "cuda").site()
    assert run_on(tmp_path, "cpu").site() is None


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


def test_a_cluster_that_came_with_the_work_without_the_folder_is_the_reason_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_node: str
) -> None:
    nodes: dict[str, str] = {}
    monkeypatch.setattr(cluster, "_others", lambda: nodes)
    monkeypatch.setattr(cluster, "_is_there", lambda path: False)

    def fails(*_: object) -> None:
        nodes[this_node] = "worker-1"
        raise StageError("rows lost")

    stage: Any = SimpleNamespace(pool_name="fake")
    monkeypatch.setattr(run_module, "find_due", lambda store, stages: [SimpleNamespace(published=None)])
    monkeypatch.setattr(run_module, "run_stages", fails)
    with pytest.raises(UsageError, match="node worker-1 of the cluster does not see"):
        run_on(tmp_path, "cpu", "auto").run_stages([stage])
    nodes.clear()
    with pytest.raises(StageError, match="rows lost"):  # here, without a cluster, nobody is asked
        run_on(tmp_path, "cpu").run_stages([stage])
