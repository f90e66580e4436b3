"""The runner against a real local Ray, with processes that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sgpu.errors import GivenUpError
from sgpu.runtime import dataflow, publication
from sgpu.runtime.publication import DuePartition, WrittenFile
from sgpu.runtime.stage import Resources
from sgpu.storage.location import Location
from sgpu.storage.store import Store

TOY = Path(__file__).parent / "toy"


@pytest.fixture(params=["ray", "in_process"])
def either(toy: ModuleType, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy stage under each executor: what a stage promises holds for both."""
    monkeypatch.setattr(toy, "OWN_PROCESS", request.param == "ray")
    return toy


@pytest.fixture
def here(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy stage in this process, for what the runner decides, whoever did the work."""
    monkeypatch.setattr(toy, "OWN_PROCESS", False)
    return toy


def _ids(root: Path, toy: ModuleType) -> list[str]:
    return Store(root).require("labels", toy.TARGET).read()["question_id"].to_pylist()


def _statuses(root: Path, toy: ModuleType) -> dict[str, str]:
    rows = Store(root).require("labels", toy.TARGET).read(["question_id", "status"]).to_pylist()
    return {row["question_id"]: row["status"] for row in rows}


def _calls(root: Path) -> list[str]:
    return (root / "calls").read_text().split()


def test_a_stage_writes_every_row_once_and_an_unchanged_one_is_not_run_again(
    tmp_path: Path, either: ModuleType
) -> None:
    first = either.run(tmp_path)
    assert first.counts["rows"] == either.ROWS and not first.reused
    assert sorted(_ids(tmp_path, either)) == [f"q{i:02d}" for i in range(either.ROWS)]
    second = either.run(tmp_path)
    assert second.reused
    assert len(_calls(tmp_path)) == either.ROWS


def test_a_worker_is_as_nice_as_the_command_and_its_waiting_threads_sleep(
    tmp_path: Path, toy: ModuleType
) -> None:
    toy.run(tmp_path)
    assert (tmp_path / "process").read_text() == f"{os.nice(0)} 7000 0"


def test_what_is_written_after_the_check_is_not_published(
    tmp_path: Path, here: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = publication.check_complete

    def straggler(due: DuePartition, output: Location) -> dict[Location, WrittenFile]:
        checked = check(due, output)
        file = output.files(".parquet")[0]
        (output / "late.parquet").write_bytes(file.read_bytes())
        return checked

    monkeypatch.setattr(publication, "check_complete", straggler)
    assert here.run(tmp_path).published.rows == here.ROWS
    assert sorted(_ids(tmp_path, here)) == [f"q{i:02d}" for i in range(here.ROWS)]


@pytest.mark.parametrize("calls", [1, 2])
def test_a_row_that_raises_is_quarantined_alone(tmp_path: Path, either: ModuleType, calls: int) -> None:
    outcome = either.run(tmp_path, raises="q17", calls=calls)
    assert outcome.rows_by_status == {"ok": either.ROWS - 1, "failed": 1}
    rows = Store(tmp_path).require("labels", either.TARGET).read().to_pylist()
    bad = next(row for row in rows if row["status"] == "failed")
    assert bad["question_id"] == "q17"
    assert bad["error"] == "ValueError: q17 cannot be read"
    assert bad["label"] is None


@pytest.mark.parametrize("calls", [1, 2])
def test_a_row_that_kills_its_worker_is_quarantined_and_its_block_survives(
    tmp_path: Path, toy: ModuleType, calls: int
) -> None:
    toy.run(tmp_path, dies="q23", calls=calls)
    statuses = _statuses(tmp_path, toy)
    assert statuses.pop("q23") == "failed"
    assert len(statuses) == toy.ROWS - 1 and set(statuses.values()) == {"ok"}


def test_a_worker_killed_from_outside_costs_no_row(tmp_path: Path, toy: ModuleType) -> None:
    outcome = toy.run(tmp_path, dies_once="q11")
    assert (tmp_path / "died").exists()
    assert outcome.rows_by_status == {"ok": toy.ROWS}
    assert max(Counter(_ids(tmp_path, toy)).values()) == 1


def _down(root: Path, ids: list[str]) -> None:
    (root / "down").write_text(" ".join(ids))


def test_rows_that_failed_for_a_reason_outside_themselves_alone_are_tried_again(
    tmp_path: Path, either: ModuleType
) -> None:
    _down(tmp_path, ["q03", "q29"])
    first = either.run(tmp_path)
    assert first.rows_by_status == {"ok": either.ROWS - 2, "failed": 2}
    assert "no connection" in first.published.manifest["why_failed"]
    assert "2 of them wait for the next run" in first.line()
    again = either.run(tmp_path)
    assert again.published.fingerprint == first.published.fingerprint
    (tmp_path / "down").unlink()
    (tmp_path / "calls").unlink()
    last = either.run(tmp_path)
    assert sorted(_calls(tmp_path)) == ["q03", "q29"]
    assert last.rows_by_status == {"ok": either.ROWS}
    assert last.published.fingerprint != first.published.fingerprint
    assert max(Counter(_ids(tmp_path, either)).values()) == 1
    assert either.run(tmp_path).reused


def test_a_row_that_killed_its_worker_is_tried_again(tmp_path: Path, toy: ModuleType) -> None:
    toy.run(tmp_path, dies="q23", tolerated=0.0)
    (tmp_path / "calls").unlink()
    assert toy.run(tmp_path).rows_by_status == {"ok": toy.ROWS}
    assert _calls(tmp_path) == ["q23"]


def test_more_waiting_rows_than_are_tolerated_stop_the_stage_and_keep_the_others(
    tmp_path: Path, either: ModuleType
) -> None:
    _down(tmp_path, ["q03", "q04", "q05"])
    with pytest.raises(GivenUpError, match=r"3 of 40 rows .*no connection.*\(3 of 3 say so\)"):
        either.run(tmp_path, tolerated=0.05)
    assert Store(tmp_path).published("labels", either.TARGET) is None
    (tmp_path / "down").unlink()
    (tmp_path / "calls").unlink()
    assert either.run(tmp_path).rows_by_status == {"ok": either.ROWS}
    assert sorted(_calls(tmp_path)) == ["q03", "q04", "q05"]


def test_a_stage_gives_up_after_twenty_failures_in_a_row(tmp_path: Path, either: ModuleType) -> None:
    _down(tmp_path, [f"q{i:02d}" for i in range(either.ROWS)])
    with pytest.raises(GivenUpError, match="gave up after 20"):
        either.run(tmp_path, tolerated=1.0)
    # Each row once in its block and once alone; at most two blocks were begun beyond the twentieth row.
    assert len(_calls(tmp_path)) <= 2 * (20 + 2 * either.BLOCK)


def test_where_no_row_came_through_faults_of_rows_are_tried_again_too(
    tmp_path: Path, here: ModuleType
) -> None:
    ids = [f"q{i:02d}" for i in range(here.ROWS)]
    _down(tmp_path, ids[10:])
    with pytest.raises(GivenUpError, match="0 rows are finished"):
        here.run(tmp_path, raises=" ".join(ids[:10]))
    (tmp_path / "down").unlink()
    assert here.run(tmp_path).rows_by_status == {"ok": here.ROWS}


def test_a_stage_of_which_every_row_failed_is_no_finished_one(tmp_path: Path, here: ModuleType) -> None:
    ids = [f"q{i:02d}" for i in range(here.ROWS)]
    with pytest.raises(GivenUpError, match=r"all 40 rows failed: ValueError: q\d\d cannot be read.*40 of 40"):
        here.run(tmp_path, raises=" ".join(ids))
    assert Store(tmp_path).published("labels", here.TARGET) is None
    assert here.run(tmp_path).rows_by_status == {"ok": here.ROWS}


def _start(root: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{TOY}{os.pathsep}{Path(__file__).parents[2]}"}
    command = [sys.executable, str(TOY / "toy_stage.py"), str(root), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _finished_files(root: Path) -> int:
    return len(list(root.glob("tables/labels/**/*.parquet")))


def test_a_driver_killed_in_mid_stage_resumes_without_repeating_finished_blocks(
    tmp_path: Path, toy: ModuleType
) -> None:
    process = _start(tmp_path)
    deadline = time.monotonic() + 120
    while _finished_files(tmp_path) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(2)  # the dead driver's workers notice and end
    assert Store(tmp_path).published("labels", toy.TARGET) is None
    assert 3 <= _finished_files(tmp_path) < toy.ROWS // toy.BLOCK
    outcome = toy.run(tmp_path)
    assert outcome.rows_resumed >= 2 * toy.BLOCK
    assert max(Counter(_ids(tmp_path, toy)).values()) == 1
    assert len(_ids(tmp_path, toy)) == toy.ROWS
    # Only blocks that were in flight at the kill may have been computed twice.
    assert len(_calls(tmp_path)) <= toy.ROWS + 3 * toy.BLOCK


def test_a_driver_killed_before_the_commit_only_commits_when_run_again(
    tmp_path: Path, toy: ModuleType
) -> None:
    process = _start(tmp_path, "stop-before-commit")
    process.wait(timeout=240)
    assert Store(tmp_path).published("labels", toy.TARGET) is None
    outcome = toy.run(tmp_path)
    assert outcome.counts == {} and outcome.rows_resumed == toy.ROWS
    assert len(_calls(tmp_path)) == toy.ROWS
    assert len(_ids(tmp_path, toy)) == toy.ROWS


def test_a_new_stage_version_replaces_what_was_published(tmp_path: Path, here: ModuleType) -> None:
    here.run(tmp_path)
    outcome = here.run(tmp_path, version=2)
    assert not outcome.reused
    assert len(_ids(tmp_path, here)) == here.ROWS


def test_a_process_that_died_of_its_own_work_is_followed_by_workers(tmp_path: Path, toy: ModuleType) -> None:
    process = _start(tmp_path, "here")
    deadline = time.monotonic() + 120
    while _finished_files(tmp_path) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    begun = _calls(tmp_path)
    toy.OWN_PROCESS = False
    try:
        # As under Ray, the row that ended the process is quarantined, and costs the driver nothing.
        outcome = toy.run(tmp_path, dies="q31")
    finally:
        toy.OWN_PROCESS = True
    assert outcome.rows_by_status == {"ok": toy.ROWS - 1, "failed": 1}
    assert outcome.rows_resumed >= 3 * toy.BLOCK
    assert sorted(_ids(tmp_path, toy)) == [f"q{i:02d}" for i in range(toy.ROWS)]
    again = Counter(_calls(tmp_path)[len(begun) :])
    assert not set(again) & set(begun[: 3 * toy.BLOCK])


def test_what_this_process_was_interrupted_in_goes_on_under_ray(
    tmp_path: Path, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy, "OWN_PROCESS", False)
    monkeypatch.setattr(toy.ToyWorker, "counts", _Interrupt(after=3))
    with pytest.raises(KeyboardInterrupt):
        toy.run(tmp_path)
    monkeypatch.undo()
    assert _finished_files(tmp_path) == 2
    outcome = toy.run(tmp_path)
    assert outcome.rows_resumed == 2 * toy.BLOCK
    assert sorted(_ids(tmp_path, toy)) == [f"q{i:02d}" for i in range(toy.ROWS)]
    assert len(_calls(tmp_path)) == toy.ROWS + toy.BLOCK


class _Interrupt:
    """A method of a worker that is interrupted at the call of this number."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, _output: pa.Table) -> dict[str, float]:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return {}


@pytest.mark.parametrize(
    ("change", "here"),
    [
        ({}, True),
        ({"own_process": True}, False),
        ({"num_gpus": 0.25}, False),
    ],
)
def test_this_process_does_only_what_needs_neither_engine_nor_gpu(
    tmp_path: Path, change: dict[str, Any], here: bool
) -> None:
    source = SimpleNamespace(rows=dataflow.MAX_ROWS, files=())
    ask = replace(Resources(own_process=False), **change)
    stage: Any = SimpleNamespace(source=source, rows=source.rows, resources=ask, preparation=None)
    tasks = [dataflow.Task(stage, Location.of(tmp_path))]
    assert dataflow.is_done_here(tasks, None) is here
    assert not dataflow.is_done_here(tasks, "auto")
    assert not dataflow.is_done_here(tasks * 2, None)  # too many rows
