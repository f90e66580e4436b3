"""Pools that do not start, or whose workers hang, and work that goes on as if nobody watched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sgpu.errors import StageError
from sgpu.runtime.ledger import Ledger, Ledgers, Locked
from sgpu.runtime.shelves import Crew, Task
from sgpu.runtime.stalls import watch
from sgpu.storage.location import Location
from sgpu.storage.store import Store


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgpu.runtime.stalls.CHECK_S", 0.02)


@pytest.fixture
def crew(tmp_path: Path, toy: ModuleType) -> Crew:
    stage = toy.stage(Store(tmp_path), tmp_path)
    return Crew((Task(stage, Location.of(tmp_path / "rows")),), 1, 1)


@pytest.fixture
def shared() -> Locked:
    return Locked(Ledgers(Ledger, [{}]))


def hang() -> Iterator[None]:
    yield
    threading.Event().wait(20)


def test_blocks_and_errors_come_through(crew: Crew, shared: Locked) -> None:
    def work() -> Iterator[None]:
        yield
        yield
        raise ConnectionError("gone")

    seen = 0
    with pytest.raises(ConnectionError, match="gone"):
        for _ in watch(work(), [crew], [shared], print):
            seen += 1
    assert seen >= 2
    assert list(watch(iter(()), [crew], [shared], print)) == []


def test_a_pool_whose_workers_hang_ends_the_stage_by_name(crew: Crew, shared: Locked) -> None:
    shared.count_start(1.0)
    with pytest.raises(StageError, match=r"toy .*no row for 0\.0 minutes.*bounds\.stalled_minutes"):
        list(watch(hang(), [crew], [shared], print, stalled_s=0.1))


def test_a_pool_without_a_ready_worker_is_told_once_and_waited_for(
    crew: Crew, shared: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgpu.runtime.stalls.HINT_AFTER_S", 0.0)
    said: list[str] = []
    work = watch(hang(), [crew], [shared], said.append, stalled_s=0.01)
    for _ in range(8):
        next(work)
    (line,) = said
    assert crew.title in line and "no worker is ready" in line


def test_a_pool_that_has_written_all_its_rows_is_not_waited_for(crew: Crew, shared: Locked) -> None:
    shared.count_block(0, crew.tasks[0].rows, 1.0)
    work = watch(hang(), [crew], [shared], print, stalled_s=0.01)
    for _ in range(5):
        next(work)
