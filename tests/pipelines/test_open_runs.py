"""Steps of Dagster and commands that want the same folder: one works in it at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import build_reconstructable_job, execute_job
from locked_steps import STEPS, is_locked, told
from own_answers import response_sets, write_study

from bench.constructed_cells import write_run
from pipelines.assets import StudyResource
from pipelines.transfer import TransferResource
from sgpu.runtime import lock
from sgpu.runtime.lock import run_lock
from sgpu.stages.run import Run, open_run
from sgpu.stages.transfer_sources import TransferRun
from sgpu.storage.location import Location
from sgpu.study.benchmark import load_study

Opened = Callable[[], Run | TransferRun]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path, response_sets(12))


def in_a_step(resource: dg.ConfigurableResource, work: Callable[[Opened], None]) -> None:
    """Do some work where an asset does its own."""

    @dg.asset
    def asset(study: dg.ResourceParam[Any]) -> None:
        work(study.open)

    assert dg.materialize([asset], resources={"study": resource}).success


def test_a_step_keeps_others_out_of_the_folder_until_it_ends(study: Path, tmp_path: Path) -> None:
    seen: list[Run] = []

    def work(opened: Opened) -> None:
        run = opened()
        assert isinstance(run, Run) and opened() is run and is_locked(run)
        seen.append(run)

    resource = StudyResource(study=str(study), out=str(tmp_path / "out"))
    in_a_step(resource, work)
    assert not is_locked(seen[0])
    in_a_step(resource, work)  # and a later step can open it again
    assert seen[1] is not seen[0]


def test_a_step_of_a_transfer_study_does_too(tmp_path: Path) -> None:
    write_run(tmp_path / "text", ["one", "two"], ["facts"], rows=20)
    (tmp_path / "t.yaml").write_text("runs: [{path: text}]\n")
    same_place = open_run(load_study(write_study(tmp_path, [])), tmp_path / "out")
    seen: list[bool] = []
    in_a_step(
        TransferResource(study=str(tmp_path / "t.yaml"), out=str(tmp_path / "out")),
        lambda opened: seen.extend([isinstance(opened(), TransferRun), is_locked(same_place)]),
    )
    assert seen == [True, True] and not is_locked(same_place)


def test_a_step_waits_for_the_run_that_has_the_folder(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "POLL_S", 0.05)
    out, ended, began = tmp_path / "out", [], []
    out.mkdir()
    taken = threading.Event()

    def command() -> None:
        with run_lock(Location.of(out), out):
            taken.set()
            time.sleep(1.0)
            ended.append(time.monotonic())

    thread = threading.Thread(target=command)
    thread.start()
    taken.wait()

    def work(opened: Opened) -> None:
        opened()
        began.append(time.monotonic())

    in_a_step(StudyResource(study=str(study), out=str(out)), work)
    thread.join()
    assert began[0] >= ended[0]


def test_steps_with_processes_of_their_own_take_turns(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = build_reconstructable_job(
        "locked_steps", "steps_of", (str(study), str(out)), {}, str(Path(__file__).parent)
    )
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        assert execute_job(job, instance).success
    times = told(out)
    assert len(times) == len(STEPS) and all(locked for _, _, locked in times)
    for (_, ended, _), (began, _, _) in pairwise(times):
        assert began >= ended
