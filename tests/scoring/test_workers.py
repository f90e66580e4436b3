"""Work that ends its worker is cut down to the file, and the rest is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu.logs.records import BatchPrompt, CallPart, LogRecord, SampledAnswer
from sgpu.logs.snapshot import take_snapshot
from sgpu.scoring.isolation import FailureRecord
from sgpu.scoring.plan import DayPlan, ModelName, Models
from sgpu.scoring.sets import ingest, joining
from sgpu.scoring.sets.work_rows import (
    ABOUT,
    ANSWER,
    CALL,
    RECORD,
    REJECTED,
    SAME_ID,
    Row,
    of_part,
    of_prompt,
    of_record,
)
from sgpu.scoring.workers import NightWorker
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows
from tests.scoring.nights.nights import DAY, SCORER, rows, settings, write
from tests.scoring.sets.test_joining import write_waiting


class Death(BaseException):
    """The worker's process is gone; whoever called it sees that and sends the work to another."""


@pytest.fixture
def plan(tmp_path: Path) -> DayPlan:
    for place, name in enumerate("abcd"):
        write(tmp_path / "logs", f"{name}.jsonl", rows(range(10 * place, 10 * place + 10)))
    models = Models(ModelName("models:/m/1", "m", "1", "f00d"))
    plan = DayPlan(DAY, settings(tmp_path), models, take_snapshot(Location.of(tmp_path / "logs"), DAY))
    plan.save()
    return plan


def done(failures: FailureRecord, plan: DayPlan, method: str, *arguments: Any) -> tuple[Any, int]:
    """The result, from as many workers as it takes, and how many of them died."""
    for deaths in range(100):
        worker = NightWorker(lambda name, *given: getattr(failures, name)(*given), SCORER, "")
        try:
            return getattr(worker, method)(str(plan.work), *arguments), deaths
        except Death:
            continue
    raise AssertionError("it ends every worker")


def test_two_files_that_end_their_workers_are_faults_and_the_others_are_read(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_split = ingest.read_split

    def deadly(*given: Any, **named: Any) -> Iterator[Any]:
        if given[2].file in (1, 3):
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", deadly)
    assert len(plan.units) == 1
    content, deaths = done(FailureRecord(), plan, "ingest", 0)
    assert content["faults"] == [(1, "file_unreadable"), (3, "file_unreadable")]
    assert content["accounting"]["rows_in"] == 20 and deaths < 10
    found = [read_rows(plan.work / "ingest" / file).to_pylist() for file in content["own"]["files"]]
    faults = [row["detail"] for rows in found for row in rows if row["reason"]]
    assert faults == ["2 times it has ended the process that reads it, when it was alone in it"] * 2


def test_a_worker_that_died_of_something_else_costs_nothing(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_split, left = ingest.read_split, [3]

    def unlucky(*given: Any, **named: Any) -> Iterator[Any]:
        if left[0]:
            left[0] -= 1
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", unlucky)
    content, deaths = done(FailureRecord(), plan, "ingest", 0)
    assert (content["faults"], content["accounting"]["rows_in"], deaths) == ([], 40, 3)


def test_a_run_reads_its_own_plan_and_not_that_of_an_earlier_run_with_the_same_folder(
    plan: DayPlan, tmp_path: Path
) -> None:
    assert done(FailureRecord(), plan, "ingest", 0)[0]["accounting"]["rows_in"] == 40
    plan.work.delete()
    (tmp_path / "logs").rename(tmp_path / "moved")
    moved = replace(plan, settings=settings(tmp_path, logs=str(tmp_path / "moved")))
    moved.save()
    assert moved.work == plan.work
    assert done(FailureRecord(), moved, "ingest", 0)[0]["accounting"]["rows_in"] == 40


NOON = 1_795_219_141_000_000


def batched(name: str, line: int) -> list[Row]:
    """The answered request and the question of one line of a batch."""
    record = LogRecord(f"r-{name}", NOON, "m", None, (SampledAnswer("a"), SampledAnswer("b")), join_key=name)
    question = BatchPrompt(name, "1", "bot", "m")
    return [of_record(record, 0, line), of_prompt(question, 1, line)]


def delivered_twice(name: str, line: int) -> list[Row]:
    """A single answer in two lines."""
    record = LogRecord(name, NOON, "m", None, (SampledAnswer("a"),), group_key="g")
    key = f"{SAME_ID}{name}\x1fm"
    return [{**of_record(record, 0, line + more), "join_key": key} for more in range(2)]


def called(name: str, line: int) -> list[Row]:
    """A call of two answers, in an event each, and an event that is none."""
    parts = [of_part(CallPart(name, "x", NOON, "m", None), ANSWER, 0, line + more) for more in range(2)]
    return [*parts, of_part(CallPart(name, "x", NOON, "m", None), ABOUT, 0, line + 2, "log_event")]


def test_rows_that_end_the_workers_that_join_them_go_to_quarantine_and_the_others_are_joined(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"q": batched, "s": delivered_twice, "c": called}
    names = [f"{kind}-{number}" for kind in kinds for number in range(4)]
    waits = [row for place, name in enumerate(names) for row in kinds[name[0]](name, 10 * place)]
    write_waiting(plan.work, waits)
    deadly = {"q-1", f"{SAME_ID}s-2\x1fm", f"{CALL}c-3"}
    take = joining._Joining.take

    def die(self: Any, key: str, together: list[Row]) -> None:
        if key in deadly:
            raise Death
        take(self, key, together)

    monkeypatch.setattr(joining._Joining, "take", die)
    content, deaths = done(FailureRecord(), plan, "join", 0)
    assert deaths == 3 + 2 * len(deadly)
    own = [
        row for file in content["own"]["files"] for row in read_rows(plan.work / "ingest" / file).to_pylist()
    ]
    given_up = sorted(row["request_id"] for row in own if row["reason"] == "scoring_failed")
    assert given_up == ["c-3", "r-q-1", "s-2", "s-2"]
    assert all(row["kind"] == REJECTED and row["texts"] is None for row in own if row["reason"])
    assert sum(row["kind"] == RECORD for row in own) == 3
    lines = len(own) + content["prompts"] + sum(content["no_answer"].values())
    assert (lines, content["prompts"]) == (len(waits), 4)
    assert content["no_answer"] == {"log_event": 4, "part_of_a_call": 4}


def test_joined_key_by_key_after_deaths_of_something_else_the_rows_are_the_same(plan: DayPlan) -> None:
    waits = [
        row for place in range(5) for row in (*batched(f"q-{place}", place), *called(f"c-{place}", place))
    ]
    write_waiting(plan.work, waits)
    failures = FailureRecord()
    together, _ = done(failures, plan, "join", 0)
    rows = [read_rows(plan.work / "ingest" / file) for file in together["own"]["files"]]
    (plan.work / "ingest" / "join-00000.json").delete()
    for _ in range(3):
        failures.begin(f"joining part 0 in {plan.work}")
    assert done(failures, plan, "join", 0) == (together, 0)
    assert rows == [read_rows(plan.work / "ingest" / file) for file in together["own"]["files"]]
