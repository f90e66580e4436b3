"""What the input line of a batch says of the answers, and what it cannot say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from sgpu.logs.records import BatchPrompt, LogRecord, SampledAnswer
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.sets.ingest import OWN
from sgpu.scoring.sets.joining import Joiner
from sgpu.scoring.sets.work_rows import ITEM, RECORD, REJECTED, Row, of_prompt, of_record, table_of
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import read_rows, write_rows

SEVERAL = "the request asks 2 questions, not 1"
ANSWERED = LogRecord(
    "cmpl-1", 1_795_219_141_000_000, "m", None, (SampledAnswer("a"), SampledAnswer("b")), join_key="q-1"
)  # fmt: skip


def write_waiting(work: Location, rows: list[Row]) -> None:
    """The only part of rows that wait for each other."""
    file = work / "waiting" / "0" / "a.parquet"
    file.parent.make_folder()
    (work / "ingest" / "waiting.json").write_json({"folder": "waiting", "parts": 1})
    table = table_of(rows)
    write_rows(file, table.append_column(ITEM, pa.array(range(len(table)), pa.int64())))


def joined(path: Path, prompts: list[BatchPrompt], reads_questions: bool = False) -> list[Row]:
    """What comes of one answered request and the input lines that have its id."""
    rows: list[Row] = [of_prompt(prompt, 0, line) for line, prompt in enumerate(prompts)]
    rows.append(of_record(ANSWERED, 1, 1))
    folder = Location.of(path)
    write_waiting(folder, rows)
    settings = SimpleNamespace(group_window_s=60, resample=None)
    plan: Any = SimpleNamespace(work=folder, folder="", settings=settings, reads_questions=reads_questions)
    plan.without_tracking = lambda: plan
    content = Joiner(cast(DayPlan, plan)).work("0", None)
    return [row for file in content[OWN]["files"] for row in read_rows(folder / "ingest" / file).to_pylist()]


def prompt(sha256: str, fault: str | None = None, asked: str | None = None) -> BatchPrompt:
    return BatchPrompt("q-1", sha256, "bot", "m", prompt=asked, fault=fault)


def test_an_answer_gets_what_its_input_says(tmp_path: Path) -> None:
    (row,) = joined(tmp_path, [prompt("1")])
    assert (row["kind"], row["route"], row["prompt_sha256"]) == (RECORD, "bot", "1")


@pytest.mark.parametrize("reads_questions", [True, False])
def test_an_answer_gets_the_question_of_its_input_where_a_model_reads_it(
    tmp_path: Path, reads_questions: bool
) -> None:
    (row,) = joined(tmp_path, [prompt("1", asked='"Who?"')], reads_questions)
    assert row["question"] == ("Who?" if reads_questions else None)
    assert (row["prompt"], row["askable"], row["asked"] is None) == (None, False, not reads_questions)


def test_of_two_batches_with_one_id_neither_is_believed(tmp_path: Path) -> None:
    (row,) = joined(tmp_path, [prompt("1"), prompt("2")])
    assert (row["kind"], row["route"], row["prompt_sha256"]) == (RECORD, None, None)


@pytest.mark.parametrize("place", [0, 1])
def test_answers_that_may_be_to_several_questions_are_no_set(tmp_path: Path, place: int) -> None:
    prompts = [prompt("1")]
    prompts.insert(place, prompt("2", fault=SEVERAL))
    (row,) = joined(tmp_path, prompts)
    assert (row["kind"], row["reason"], row["detail"]) == (REJECTED, "bad_value", SEVERAL)
