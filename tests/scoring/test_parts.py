"""A part that fails or ends its worker is cut down to the file, key or set that does it; the rest is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import IntegrityError, StageError
from sgpu.logs.records import BatchPrompt, CallPart, LogRecord, SampledAnswer
from sgpu.logs.snapshot import take_snapshot
from sgpu.runtime import runner
from sgpu.runtime.dataflow import work_here
from sgpu.runtime.progress import Progress
from sgpu.scoring.parts import Step, StepRun
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
from sgpu.scoring.slices import SliceScorer, scored_files, scored_folder, write_slices
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows
from tests.scoring.nights.counting_scorer import CountingScorer
from tests.scoring.nights.nights import DAY, rows, settings, write
from tests.scoring.sets.test_joining import write_waiting


class Death(BaseException):
    """The worker's process is gone; whoever called it sees that and sends the work to another."""


@pytest.fixture
def plan(tmp_path: Path) -> DayPlan:
    for place, name in enumerate("abcd"):
        write(tmp_path / "logs", f"{name}.jsonl", rows(range(10 * place, 10 * place + 10)))
    models = Models(ModelName("models:/m/1", "m", "1", "f00d"))
    plan = DayPlan(DAY, settings(tmp_path), models, take_snapshot(Location.of(tmp_path / "logs"), DAY))
    return plan


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """As many entries as workers died; each is replaced, and what they share lives on, as under Ray."""
    died: list[None] = []

    def replaced(*given: Any) -> Iterator[None]:
        try:
            yield from work_here(*given)
        except Death:
            died.append(None)
            yield from replaced(*given)

    monkeypatch.setattr(runner, "work_here", replaced)
    return died


def done(plan: DayPlan, step: type[Step], parts: list[str], **arguments: Any) -> list[dict[str, Any]]:
    return StepRun(plan, Progress(), step(plan, **arguments)).done(parts, small=True)


def rows_left(plan: DayPlan, contents: list[dict[str, Any]]) -> list[Row]:
    files = [plan.work / "ingest" / file for content in contents for file in content["own"]["files"]]
    return [row for file in files for row in read_rows(file).to_pylist()]


def test_two_files_that_end_their_workers_are_faults_and_the_others_are_read(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch, deaths: list[None]
) -> None:
    read_split = ingest.read_split

    def deadly(*given: Any, **named: Any) -> Iterator[Any]:
        if given[2].file in (1, 3):
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", deadly)
    assert len(plan.units) == 1
    contents = done(plan, ingest.Reader, ["0"])
    assert [tuple(fault) for content in contents for fault in content["faults"]] == [
        (1, "file_unreadable"), (3, "file_unreadable"),
    ]  # fmt: skip
    assert sum(content["accounting"]["rows_in"] for content in contents) == 20 and len(deaths) < 10
    faults = [row["detail"] for row in rows_left(plan, contents) if row["reason"]]
    assert faults == ["ended its worker process 2 times when it was alone in it"] * 2


def test_a_worker_that_died_of_something_else_costs_nothing(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch, deaths: list[None]
) -> None:
    read_split, left = ingest.read_split, [2]

    def unlucky(*given: Any, **named: Any) -> Iterator[Any]:
        if left[0]:
            left[0] -= 1
            raise Death
        yield from read_split(*given, **named)

    monkeypatch.setattr(ingest, "read_split", unlucky)
    [content] = done(plan, ingest.Reader, ["0"])
    assert (content["faults"], content["accounting"]["rows_in"], len(deaths)) == ([], 40, 2)


def test_what_was_done_is_not_done_again(plan: DayPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = done(plan, ingest.Reader, ["0"])
    monkeypatch.setattr(ingest, "read_split", None)
    assert done(plan, ingest.Reader, ["0"]) == contents


def test_an_error_of_the_reading_is_no_fault_of_a_file(
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **named: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(ingest, "read_split", full)
    with pytest.raises(StageError, match="no space left"):
        done(plan, ingest.Reader, ["0"])


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
    plan: DayPlan, monkeypatch: pytest.MonkeyPatch, deaths: list[None]
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
    contents = done(plan, joining.Joiner, ["0"])
    # Three times the part, once its pieces together, and each of the deadly alone.
    assert len(deaths) == 3 + 1 + 2 * len(deadly)
    own = rows_left(plan, contents)
    given_up = sorted(row["request_id"] for row in own if row["reason"] == "scoring_failed")
    assert given_up == ["c-3", "r-q-1", "s-2", "s-2"]
    assert all(row["kind"] == REJECTED and row["texts"] is None for row in own if row["reason"])
    assert sum(row["kind"] == RECORD for row in own) == 3
    prompts = sum(content["prompts"] for content in contents)
    no_answer = sum((Counter(content["no_answer"]) for content in contents), Counter[str]())
    assert (len(own) + prompts + no_answer.total(), prompts) == (len(waits), 4)
    assert no_answer == {"log_event": 4, "part_of_a_call": 4}


def test_joined_key_by_key_the_rows_are_the_same(plan: DayPlan) -> None:
    waits = [
        row for place in range(5) for row in (*batched(f"q-{place}", place), *called(f"c-{place}", place))
    ]
    write_waiting(plan.work, waits)
    step = joining.Joiner(plan)
    together = rows_left(plan, [step.work("0", None)])
    assert rows_left(plan, [step.work("0", [key]) for key in step.pieces("0")]) == together


def scored(plan: DayPlan, sets: list[list[str]], source: Any) -> list[Row]:
    """What is said of each set, in their order."""
    keyed = [(f"{number:03d}", texts, None) for number, texts in enumerate(sets)]
    slices = write_slices(plan.work, keyed, 100)
    contents = done(plan, SliceScorer, list(slices), source=source)
    files = [scored_folder(plan.work) / content["file"] for content in contents]
    rows = [row for file in files for row in read_rows(file).to_pylist()]
    return sorted(rows, key=lambda row: str(row["set_key"]))


class Source:
    """Opens a scorer that works, but for sets with a word that ``fails``."""

    def __init__(self, fails: Callable[[Sequence[Sequence[str]]], None]) -> None:
        self._fails, self._scorer = fails, CountingScorer()

    def of(self, plan: DayPlan) -> Any:
        return self

    def score(self, sets: Sequence[Sequence[str]], questions: Sequence[str | None]) -> Any:
        self._fails(sets)
        return self._scorer.score(sets, questions)


SETS = [[f"a{number}", "b"] for number in range(60)]


def test_sets_that_raise_or_end_their_worker_are_given_up_without_a_word_of_theirs(
    plan: DayPlan, deaths: list[None]
) -> None:
    def fail(sets: Sequence[Sequence[str]]) -> None:
        words = {texts[0] for texts in sets}
        if "a7" in words:
            raise ValueError("the secret answer a7")
        if "a9" in words:
            raise Death

    rows = scored(plan, SETS, Source(fail))
    assert [row["set_key"] for row in rows] == [f"{number:03d}" for number in range(60)]
    assert {row["set_key"]: row["why"] for row in rows if row["refusal"]} == {
        "007": "could not be scored: ValueError",
        "009": "ended its worker process 2 times when it was alone in it",
    }
    assert len(deaths) < 6


@pytest.mark.parametrize("error", [Death(), MemoryError()])
def test_sets_that_are_only_too_many_at_a_time_are_scored(
    plan: DayPlan, deaths: list[None], error: BaseException
) -> None:
    def fail(sets: Sequence[Sequence[str]]) -> None:
        if len(sets) > 6:
            raise error

    assert all(row["probability"] is not None for row in scored(plan, SETS, Source(fail)))


def test_where_nearly_all_sets_fail_it_is_not_the_sets(plan: DayPlan) -> None:
    def fail(sets: Sequence[Sequence[str]]) -> None:
        raise RuntimeError("no kernel image")

    with pytest.raises(StageError, match=r"60 of 60 pieces fail .* hardly .* could not be scored"):
        scored(plan, SETS, Source(fail))
    assert scored_files(plan.work) == []
    assert len(scored(plan, SETS, Source(lambda sets: None))) == 60


def test_a_deliberate_error_is_no_fault_of_a_set(plan: DayPlan) -> None:
    def fail(sets: Sequence[Sequence[str]]) -> None:
        raise IntegrityError("another encoder")

    with pytest.raises(IntegrityError, match="another encoder"):
        scored(plan, SETS, Source(fail))
