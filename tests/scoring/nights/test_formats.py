"""Formats whose rows need other rows: batch output and its input, single answers and their set."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sgpu.logs.formats import adapters
from sgpu.scoring.resampling.sampling import Cause, NoNewAnswers, Outcome, UnansweredRequest
from sgpu.scoring.settings import ResampleSettings
from tests.scoring.log_fixtures import FOLDER
from tests.scoring.nights import nights
from tests.scoring.nights.nights import DAY, Row, night, quarantine, reasons, row, scores, write


def asked(custom_id: str, n: int = 3, route: str = "bot") -> Row:
    body = {
        "model": "gpt",
        "n": n,
        "messages": [{"role": "user", "content": "?"}],
        "metadata": {"route": route},
    }
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def answered(number: int, custom_id: str, texts: Sequence[str]) -> Row:
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        for i, text in enumerate(texts)
    ]
    body = {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_795_180_000 + number,
        "model": "gpt-2026", "choices": choices,
    }  # fmt: skip
    response = {"status_code": 200, "request_id": f"req_{number}", "body": body}
    return {"id": f"batch_req_{number}", "custom_id": custom_id, "response": response, "error": None}


def single(request_id: str, text: str, second: int = 0, question: str = "2 + 2?", day: Any = DAY) -> Row:
    made = row(request_id, [], day, second, prompt=question, text=text)
    del made["samples"]
    return made


def test_batch_output_gets_what_only_its_input_knows(place: Path) -> None:
    write(place / "logs", "input.jsonl", [asked("q-1"), asked("q-2", route="other")])
    write(place / "logs", "output.jsonl", [answered(2, "q-2", ["a", "b"]), answered(1, "q-1", ["a", "a"])])
    result = night(place)
    found = dict(scores(place).select("request_id", "route").rows())
    assert found == {"chatcmpl-1": "bot", "chatcmpl-2": "other"}
    assert result.accounting is not None
    assert (result.accounting.rows_in, result.accounting.prompts, result.accounting.scored_rows) == (4, 2, 2)


def test_a_batch_line_without_output_is_quarantined(place: Path) -> None:
    write(place / "logs", "input.jsonl", [asked("q-1"), asked("q-2")])
    write(place / "logs", "output.jsonl", [answered(1, "q-1", ["a", "a"])])
    night(place)
    assert quarantine(place).select("file", "line", "reason").rows() == [
        ("dt=2026-11-20/input.jsonl", 2, "no_output")
    ]


def test_a_failed_batch_line_is_no_line_without_output(place: Path) -> None:
    failed = {"id": "b", "custom_id": "q-1", "response": {"status_code": 500, "body": {}}, "error": None}
    write(place / "logs", "all.jsonl", [asked("q-1"), failed])
    night(place)
    assert reasons(place) == {"failed_request": 1}


def test_an_id_that_two_batches_use_tells_nothing_of_either(place: Path) -> None:
    write(place / "logs", "a.jsonl", [asked("q", route="one"), asked("q", route="two")])
    write(place / "logs", "b.jsonl", [answered(1, "q", ["a", "a"]), answered(2, "q", ["a", "b"])])
    night(place)
    assert scores(place).select("request_id", "route").rows() == [("chatcmpl-1", None), ("chatcmpl-2", None)]


def test_batches_of_one_answer_each_are_grouped_by_the_question_of_their_input(place: Path) -> None:
    write(place / "logs", "a.jsonl", [asked(f"q-{i}", n=1) for i in range(3)])
    write(place / "logs", "b.jsonl", [answered(i, f"q-{i}", [f"answer {i // 2}"]) for i in range(3)])
    result = night(place)
    [one] = scores(place).to_dicts()
    assert (one["status"], one["n_used"], one["spectrum"]) == ("grouped", 3, [2.0, 1.0, 0.0])
    assert sorted(one["members"]) == ["chatcmpl-0", "chatcmpl-1", "chatcmpl-2"]
    assert result.accounting is not None
    assert (result.accounting.scored_rows, result.accounting.requests_scored) == (3, 1)


def test_single_answers_to_one_question_are_one_set_of_the_day(place: Path) -> None:
    write(place / "logs", "a.jsonl", [single(f"s{i}", f"{i % 2}", i) for i in range(4)])
    write(place / "logs", "b.jsonl", [single("t", "x", question="other?"), single("s0", "0", 0)])
    result = night(place)
    [one] = scores(place).to_dicts()
    assert one["members"] == ["s0", "s1", "s2", "s3"] and one["spectrum"] == [2.0, 2.0, 0.0, 0.0]
    assert reasons(place) == {"too_few_answers": 1}
    assert result.accounting is not None
    assert (result.accounting.scored_rows, result.accounting.duplicates) == (4, 1)


def test_a_shorter_window_makes_more_sets(place: Path) -> None:
    lines = [single(f"s{i}", "x", i * 600) for i in range(6)]  # from 10:00 to 10:50
    write(place / "logs", "a.jsonl", lines)
    night(place, group_window_s=1800)
    assert sorted(one["members"] for one in scores(place).to_dicts()) == [
        ["s0", "s1", "s2"],
        ["s3", "s4", "s5"],
    ]


def test_another_window_leaves_the_sets_of_before_as_they_are(place: Path) -> None:
    write(place / "logs", "a.jsonl", [single(f"s{i}", "x", i * 600) for i in range(6)])
    night(place)
    result = night(place, group_window_s=1800)
    assert [len(one["members"]) for one in scores(place).to_dicts()] == [6]
    assert result.accounting is not None and result.accounting.already == 6


def test_an_answer_whose_clock_has_moved_on_delivery_is_in_one_set(place: Path) -> None:
    """Across the border of two windows, in one night and in two."""
    lines = [
        single("s0", "x", 1799),
        single("s1", "x", 1798),
        single("t0", "x", 1801),
        single("t1", "y", 1802),
    ]
    write(place / "logs", "a.jsonl", [*lines, single("s0", "x", 1801)])
    night(place, group_window_s=1800)
    write(
        place / "logs",
        "b.jsonl",
        [single("s1", "x", 1803), single("t2", "x", 1, "2?"), single("t3", "y", 2, "2?")],
    )
    result = night(place, group_window_s=1800)
    members = [one["members"] for one in scores(place).to_dicts()]
    assert sorted(members) == [["s1", "s0"], ["t0", "t1"], ["t2", "t3"]]
    assert result.accounting is not None and result.accounting.duplicates == 2


def test_single_answers_of_one_id_to_two_questions_are_refused(place: Path) -> None:
    lines = [single("s0", "x"), single("s0", "x", 1, "other?"), single("s1", "x", 2), single("s2", "y", 3)]
    write(place / "logs", "a.jsonl", lines)
    night(place)
    assert reasons(place) == {"conflicting_duplicate": 2}
    assert [one["members"] for one in scores(place).to_dicts()] == [["s1", "s2"]]


def test_days_of_another_time_zone_have_whole_sets(place: Path) -> None:
    for day in (DAY, DAY + timedelta(days=1)):
        # From 08:00 to 07:59 by the clock of the rows, as folders eight hours behind UTC hold.
        moments = [datetime(day.year, day.month, day.day, 8) + timedelta(hours=h) for h in range(24)]
        lines = [{**single(f"{day}-{m.hour}", "x"), "timestamp": f"{m.isoformat()}Z"} for m in moments]
        write(place / "logs", "a.jsonl", lines, day)
    for day in (DAY, DAY + timedelta(days=1)):
        result = night(place, day)
        assert result.accounting is not None and result.accounting.scored_rows == 24


def test_an_answer_that_comes_late_for_its_set_is_quarantined_and_the_set_stays(place: Path) -> None:
    write(place / "logs", "a.jsonl", [single("s0", "a"), single("s1", "a", 1)])
    night(place)
    write(place / "logs", "b.jsonl", [single("s2", "b", 2)])
    result = night(place)
    assert result.accounting is not None
    assert (result.accounting.already, dict(result.accounting.by_reason)) == (2, {"late_for_group": 1})
    assert [one["members"] for one in scores(place).to_dicts()] == [["s0", "s1"]]


def test_no_request_can_take_the_id_of_a_set(place: Path) -> None:
    write(place / "logs", "a.jsonl", [single("s0", "a"), single("s1", "a", 1)])
    night(place)
    [taken] = scores(place)["request_id"]
    write(place / "logs", "b.jsonl", [row(taken, ["x", "y"])])
    night(place)
    assert reasons(place) == {"conflicting_duplicate": 1}
    nights.everywhere_once(place)


def test_single_answers_that_are_delivered_again_a_day_later_make_no_second_set(place: Path) -> None:
    tomorrow = DAY + timedelta(days=1)
    lines = [single("s0", "a"), single("s1", "a", 1)]
    write(place / "logs", "a.jsonl", lines)
    write(place / "logs", "a.jsonl", lines, tomorrow)
    night(place)
    result = night(place, tomorrow)
    assert result.accounting is not None and result.accounting.already == 2
    assert scores(place).height == 1


def test_every_format_in_one_folder_adds_up(place: Path) -> None:
    folder = place / "logs" / f"dt={DAY}"
    folder.mkdir(parents=True)
    for file in FOLDER.glob("*.jsonl"):
        shutil.copy(file, folder)
    result = night(place)
    assert result.accounting is not None and result.accounting.scored_rows > 5
    assert set(result.accounting.by_format) == set(adapters())
    assert quarantine(place).height == result.accounting.quarantined
    nights.everywhere_once(place)


class Oracle:
    """Answers every request but one, and knows which were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def is_chosen(self, request_id: str) -> bool:
        return True

    def close(self) -> None:
        return None

    def answers(self, requests: Sequence[UnansweredRequest]) -> list[Outcome]:
        self.asked += [f"{request.model}'s {request.request_id}" for request in requests]
        assert all(request.prompt for request in requests)
        return [
            NoNewAnswers(Cause.REFUSED, "status 400") if request.request_id == "silent" else ("a", "b")
            for request in requests
        ]


def test_requests_with_one_answer_may_be_asked_again_and_only_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle()
    monkeypatch.setattr("sgpu.scoring.resampling.sampling.Resampler", lambda *_, **__: oracle)
    spec = ResampleSettings(base_url="http://localhost:1/v1")
    lines = [
        row("x", ["a"], prompt="?", sampling={"n": 2}),
        row("silent", ["a"], prompt="!", sampling={"n": 2}),
    ]
    write(place / "logs", "a.jsonl", [*lines, row("y", ["a", "a"]), single("s", "4")])
    night(place, resample=spec)
    found = dict(scores(place).select("request_id", "status").rows())
    assert found.pop("x") == "resampled" and found.pop("y") == "ok"
    assert list(found.values()) == ["resampled"]  # the set of the single answer
    assert quarantine(place).select("request_id", "detail").rows() == [
        ("silent", "refused_by_endpoint: status 400")
    ]
    asked_before = len(oracle.asked)
    write(place / "logs", "b.jsonl", [row("z", ["a", "a"])])
    result = night(place, resample=spec)
    assert oracle.asked[asked_before:] == ["m's silent"]
    assert result.accounting is not None and result.accounting.already == 3


CLIENTS = ("openinference", "openllmetry_0_40", "openllmetry_events", "openai_v2_events")


@pytest.mark.parametrize("cut", [False, True], ids=["one file", "a file a line"])
def test_no_call_of_a_common_client_vanishes(place: Path, cut: bool) -> None:
    for name in CLIENTS:
        lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
        for number, part in enumerate([[one] for one in lines] if cut else [lines]):
            write(place / "logs", f"{name}-{number}.jsonl", part)
    found = night(place, split_mb=0.001).accounting
    assert found is not None
    # Of each client: four calls with five answers, one with three, one that failed. All four asked one
    # question once, with the same settings: these are a set.
    assert (found.scored_rows, found.by_reason) == (24, {"failed_request": 4})
    assert sorted(scores(place)["n_used"]) == [3] * 4 + [4] + [5] * 16
    assert found.no_answer_by_kind == {
        "other_event": 28, "other_span": 28, "part_of_a_call": 36, "span_without_content": 12,
    }  # fmt: skip
    assert found.no_answer == sum(found.no_answer_by_kind.values())
    assert set(scores(place)["model"]) == {"m-2026"} and set(scores(place)["route"]) == {"bot"}
    assert nights.summary(place)["accounting"]["no_answer_by_kind"] == found.no_answer_by_kind
    metrics = (place / "out" / "days" / str(DAY) / "metrics.prom").read_text()
    assert 'sgpu_score_no_answer_rows{kind="part_of_a_call"} 36.0' in metrics
    page = (place / "out" / "days" / str(DAY) / "index.html").read_text()
    assert "36 part of a call" in page and "104 rows hold none" in page


def test_events_that_are_delivered_twice_are_one_request(place: Path) -> None:
    lines = (FOLDER / "openai_v2_events.jsonl").read_text().splitlines()
    write(place / "logs", "a.jsonl", lines)
    once = night(place, rescore=True).accounting
    write(place / "logs", "b.jsonl", lines)
    twice = night(place, rescore=True).accounting
    assert once is not None and twice is not None
    assert (twice.scored_rows, dict(twice.by_reason)["failed_request"]) == (once.scored_rows, 2)
    assert twice.rows_in == 2 * once.rows_in


def spans(parent: str, child: str, text: str) -> list[Row]:
    """A span of a call and the one of a second library around it, as the console exporter writes them."""
    output = [{"role": "assistant", "parts": [{"type": "text", "content": one}]} for one in (text, "b")]
    return [
        {
            "name": "chat", "context": {"trace_id": "0x" + "a" * 32, "span_id": f"0x{own}"},
            "parent_id": above, "start_time": f"{DAY}T10:00:00Z",
            "attributes": {
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
                "gen_ai.output.messages": output,
            },
        }
        for own, above in ((child, f"0x{parent}"), (parent, None))
    ]  # fmt: skip


def test_nested_spans_in_several_lines_are_counted_and_told(place: Path) -> None:
    for number in range(3):
        inner, outer = spans(f"{number + 1:016x}", f"{number + 101:016x}", f"a{number}")
        write(place / "logs", f"inner-{number}.jsonl", [inner, inner])  # delivered twice, and counted once
        write(place / "logs", f"outer-{number}.jsonl", [outer])
    write(place / "logs", "alone.jsonl", [spans("f" * 16, "e" * 16, "x")[0]])
    found = night(place).accounting
    assert found is not None and (found.scored_rows, found.duplicates, found.nested) == (7, 3, 3)
    page = (place / "out" / "days" / str(DAY) / "index.html").read_text()
    assert "3 spans with answers lie in another with answers" in page


def test_one_span_of_two_collectors_is_scored_once(place: Path) -> None:
    inner, _ = spans("1" * 16, "2" * 16, "x")
    write(place / "logs", "hex.jsonl", [inner])
    ids = {"trace_id": "qqqqqqqqqqqqqqqqqqqqqg==", "span_id": "IiIiIiIiIiI="}
    write(place / "logs", "base64.jsonl", [{**inner, "context": ids}])
    found = night(place).accounting
    assert found is not None and (found.scored_rows, found.duplicates) == (1, 1)
    assert scores(place)["request_id"].to_list() == [f"{'a' * 32}:{'2' * 16}"]


def test_an_id_that_two_models_share_is_asked_again_for_each(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle()
    monkeypatch.setattr("sgpu.scoring.resampling.sampling.Resampler", lambda *_, **__: oracle)
    lines = [{**row("x", ["a"], prompt="?", sampling={"n": 2}), "model": name} for name in ("m", "other")]
    write(place / "logs", "a.jsonl", lines)
    night(place, resample=ResampleSettings(base_url="http://localhost:1/v1", requests=5))
    assert scores(place).select("model", "status").rows() == [("m", "resampled"), ("other", "resampled")]
    assert sorted(oracle.asked) == ["m's x", "other's x"]
