"""A night with a model that reads questions: which rows are read by agreement, and what is kept of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.plan import ModelName, Models
from sgpu.scoring.settings import ResampleSettings
from tests.scoring.chat_server import Reply, chat_server, completion
from tests.scoring.made_models import RULE, OneHotEncoder, load_one_hot, saved
from tests.scoring.nights.nights import DAY, everywhere_once, files, row, scores, settings, write

CITIES = ["It is Lima.", "Lima", "The capital of Peru is Lima.", "Cusco"]
PERU, LIMA = "What is the capital of Peru?", "Is Lima a city?"
TOOL = [{"role": "user", "content": PERU}, {"role": "tool", "content": "Lima"}]
BATCH = {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions"}


@pytest.fixture(autouse=True)
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[OneHotEncoder]:
    return load_one_hot(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    saved(tmp_path / "model", rule=RULE, reads_questions=True)
    return tmp_path


def night(place: Path, **other: Any) -> dict[str, dict[str, Any]]:
    """Score the day; the rows of the table by their ids."""
    score_day(settings(place, **other), DAY, source=ScorerSource(place / "out" / "work"))
    everywhere_once(place)
    return {one["request_id"]: one for one in scores(place).to_dicts()}


def single(number: int, text: str, **asked: Any) -> dict[str, Any]:
    return row(f"s{number}", [text], second=number, **asked)


def batch() -> list[dict[str, Any]]:
    """One request of a batch, which has its question in another file than its answers."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PERU}]
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for i, text in enumerate(CITIES)
    ]
    completion = {"id": "batch-1", "object": "chat.completion", "created": 1_795_172_400, "model": "m"}
    answered = {"response": {"status_code": 200, "body": {**completion, "choices": choices}}, "error": None}
    asked = {**BATCH, "body": {"model": "m", "messages": messages, "n": 4}}
    return [asked, {"id": "r", "custom_id": "b", **answered}]


def test_rows_with_a_question_get_an_answer_to_show_and_the_others_are_read_by_their_spectra(
    place: Path, encoders: list[OneHotEncoder]
) -> None:
    lines = [
        row("peru", CITIES, prompt=PERU),
        row("again", CITIES[::-1], messages=[{"role": "user", "content": PERU}]),
        row("lima", CITIES, prompt=LIMA),
        row("tool", CITIES, messages=TOOL),
        row("unasked", CITIES),
    ]
    write(place / "logs", "a.jsonl", lines)
    for number, line in enumerate(batch()):
        write(place / "logs", f"batch-{number}.jsonl", [line])
    singles = [single(i, text, prompt=PERU, sampling={"n": 1}) for i, text in enumerate(CITIES)]
    write(place / "logs", "b.jsonl", singles)
    found = night(place)
    by_agreement = {name for name, one in found.items() if one["head"] == "agreement"}
    (group,) = (name for name in found if name.startswith("group-"))
    assert by_agreement == {"peru", "again", "lima", "batch-1", group}
    for name, one in found.items():
        assert [one[key] is None for key in ("answer", "p_answer", "spectrum", "top_eigenvalue_share")] == (
            [False, False, True, True] if name in by_agreement else [True, True, False, False]
        )
        assert one["n_used"] == 4 and one["accepted"] == (one["probability"] >= RULE.cut)
    said = ("probability", "p_answer", "answer")
    of_peru = [[found[name][key] for key in said] for name in ("peru", "again", "batch-1", group)]
    assert all(one == of_peru[0] for one in of_peru) and "Lima" in of_peru[0][2]
    assert found["lima"]["probability"] < found["peru"]["probability"]  # "Lima" was brought by the question
    assert found["tool"]["probability"] == found["unasked"]["probability"]
    assert [sorted(texts) for encoder in encoders for texts in encoder.calls] == [sorted(CITIES)]


def test_a_second_run_changes_nothing_and_a_late_row_of_another_question_is_scored(place: Path) -> None:
    lines = [row("peru", CITIES, prompt=PERU), row("unasked", CITIES)]
    write(place / "logs", "a.jsonl", lines)
    first = night(place)
    before = files(place)
    assert night(place) == first and files(place) == before
    write(place / "logs", "b.jsonl", [lines[0], row("late", CITIES, prompt=LIMA)])
    later = night(place)
    assert {name: later[name] for name in first} == first and later["late"]["answer"] is not None
    assert later["late"]["probability"] != first["peru"]["probability"]


def test_questions_are_in_no_table_and_files_of_work_are_gone(place: Path) -> None:
    write(place / "logs", "a.jsonl", [row("peru", CITIES, prompt="What is the zebra of Peru?")])
    night(place)
    written = [path for path in (place / "out").rglob("*") if path.is_file() and "models" not in path.parts]
    tables = [str(pl.read_parquet(path).rows()) for path in written if path.suffix == ".parquet"]
    others = [path.read_text(errors="replace") for path in written if path.suffix != ".parquet"]
    assert any("Lima" in text for text in tables) and not any("zebra" in text for text in (*tables, *others))
    assert not any("Lima" in text for text in others)


def test_answers_of_a_server_are_read_with_the_question_that_it_was_asked(place: Path) -> None:
    asked = {"peru": PERU, "lima": LIMA}
    lines = [row(name, ["Lima"], prompt=one, sampling={"n": 2}) for name, one in asked.items()]
    write(place / "logs", "a.jsonl", lines)
    assert night(place, max_bad=1) == {}  # unless a server is asked, they have too few answers as ever
    with chat_server(lambda *_: Reply(completion(list(CITIES)))) as server:
        resample = ResampleSettings(base_url=server.url, share=1.0, n=4)
        found = night(place, resample=resample)
    assert {one["status"] for one in found.values()} == {"resampled"}
    assert found["peru"]["p_answer"] > found["lima"]["p_answer"]
    assert scores(place)["content_sha256"].n_unique() == 2


def test_whether_a_model_reads_questions_is_pinned_with_it() -> None:
    reads = ModelName("m", "m", "1", "0" * 64, reads_questions=True)
    kept = {"uri": "m", "name": "m", "version": "1", "sha256": "0" * 64}
    assert Models.from_json({"champion": {**kept, "reads_questions": True}, "challenger": None}) == Models(
        reads
    )
    assert not Models.from_json({"champion": kept, "challenger": None}).champion.reads_questions
