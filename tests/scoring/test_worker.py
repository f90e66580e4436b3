"""Work that ends its worker is cut down to the file, and the rest is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu.location import Location
from sgpu.scoring import ingest
from sgpu.scoring.buckets import Bucket
from sgpu.scoring.isolation import Suspicions
from sgpu.scoring.plan import ModelName, Models, Plan
from sgpu.scoring.snapshot import take_snapshot
from sgpu.scoring.work_files import read_dealt
from sgpu.scoring.worker import Worker
from tests.scoring.nights.nights import DAY, SCORER, rows, settings, write


class Death(BaseException):
    """The worker's process is gone; whoever called it sees that and sends the work to another."""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    for place, name in enumerate("abcd"):
        write(tmp_path / "logs", f"{name}.jsonl", rows(range(10 * place, 10 * place + 10)))
    models = Models(ModelName("models:/m/1", "m", "1", "f00d"))
    plan = Plan(DAY, settings(tmp_path), models, take_snapshot(Location.of(tmp_path / "logs"), DAY))
    plan.save()
    return plan


def done(book: Suspicions, plan: Plan, method: str, *arguments: Any) -> tuple[Any, int]:
    """The result, from as many workers as it takes, and how many of them died."""
    for deaths in range(100):
        worker = Worker(lambda name, *given: getattr(book, name)(*given), SCORER, "")
        try:
            return getattr(worker, method)(str(plan.work), *arguments), deaths
        except Death:
            continue
    raise AssertionError("it ends every worker")


def test_two_files_that_end_their_workers_are_faults_and_the_others_are_read(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_split = ingest.read_split

    def deadly(*given: Any, **named: Any) -> Iterator[Any]:
        if given[2].file in (1, 3):
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", deadly)
    assert len(plan.units) == 1
    content, deaths = done(Suspicions(), plan, "ingest", 0)
    assert content["faults"] == [(1, "file_unreadable"), (3, "file_unreadable")]
    assert content["accounting"]["rows_in"] == 20 and deaths < 10
    found = [
        read_dealt(plan.work / "ingest" / file, Bucket(0, 1)).to_pylist() for file in content["own"]["files"]
    ]
    faults = [row["detail"] for rows in found for row in rows if row["reason"]]
    assert faults == ["2 times it has ended the process that reads it, when it was alone in it"] * 2


def test_a_worker_that_died_of_something_else_costs_nothing(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_split, left = ingest.read_split, [3]

    def unlucky(*given: Any, **named: Any) -> Iterator[Any]:
        if left[0]:
            left[0] -= 1
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", unlucky)
    content, deaths = done(Suspicions(), plan, "ingest", 0)
    assert (content["faults"], content["accounting"]["rows_in"], deaths) == ([], 40, 3)
