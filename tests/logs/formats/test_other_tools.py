"""Records of other tools: each is one request with all its answers, and its question if there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sgpu.logs.formats import FormatReader
from sgpu.logs.formats.mapped import FieldMap
from sgpu.logs.records import BatchPrompt, LogRecord, NoAnswer, Reason, Rejected
from sgpu.scoring.settings import ScoreSettings
from tests.scoring.log_fixtures import (
    CITIES,
    LATE_EVENING,
    fixture_rows,
    items_of,
    record_of,
    rejected_of,
    texts,
)
from tests.scoring.log_folders import DAY, items, read, row, told, write

QUESTION = "What is the capital of France?"
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
           "content": [{"type": "text", "text": "Paris"}], "stop_reason": "end_turn"}  # fmt: skip


@pytest.mark.parametrize("place", range(1, 8))
def test_a_response_inside_another_record_is_found(place: int) -> None:
    record = record_of("wrapped", fixture_rows("wrapped")[place])
    assert texts(record) == CITIES and record.timestamp == LATE_EVENING and record.model == "gpt-x"
    if place != 3:  # the one of which only the response was logged
        assert QUESTION in str(record.prompt)


def test_the_payload_of_litellm_is_read() -> None:
    record = record_of("wrapped", fixture_rows("wrapped")[0])
    assert len(record.samples) == 3 and record.model == "m-2026" and QUESTION in str(record.prompt)


def test_single_answers_of_pairs_to_one_question_have_one_group() -> None:
    request = {
        "model": "claude-x",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "?"}],
    }
    pairs = [
        {
            "timestamp": 1795219141,
            "request": {**request, "system": system},
            "response": {**MESSAGE, "id": name},
        }
        for name, system in (("a", "Be brief."), ("b", "Be brief."), ("c", "Be long."))
    ]
    first, second, other = (record_of("wrapped", one) for one in pairs)
    assert first.group_key == second.group_key != other.group_key and first.group_key is not None
    assert json.loads(first.prompt or "")[0] == {"role": "system", "content": "Be brief."}


def test_calls_of_tools_that_failed_or_ask_no_model_are_told_apart() -> None:
    run = {"id": "r", "run_type": "llm", "inputs": {"messages": []}, "start_time": 1, "error": "no"}
    assert rejected_of("wrapped", run).reason is Reason.FAILED_REQUEST
    assert items_of("wrapped", {**run, "run_type": "chain"}) == [NoAnswer("other_run")]


def test_what_a_list_of_messages_is_must_be_told_by_the_number_that_was_asked_for() -> None:
    observation = fixture_rows("wrapped")[6]
    observation["modelParameters"] = {}
    assert rejected_of("wrapped", observation).reason is Reason.BAD_VALUE


def test_converse_of_bedrock_is_one_answer() -> None:
    log = {
        "schemaType": "ModelInvocationLog", "requestId": "r", "timestamp": "2026-11-20T23:59:01Z",
        "modelId": "m",
        "input": {"inputBodyJson": {"messages": [{"role": "user", "content": [{"text": "?"}]}]}},
        "output": {"outputBodyJson": {"stopReason": "end_turn", "output": {"message": {
            "role": "assistant", "content": [{"reasoningContent": {}}, {"text": "Pa"}, {"text": "ris"}]}}}},
    }  # fmt: skip
    assert texts(record_of("wrapped", log)) == ("Paris",)


def test_a_batch_of_anthropic_is_joined_with_its_requests() -> None:
    found = items_of("anthropic", *fixture_rows("anthropic"))
    prompts = {one.join_key: one for one in found if isinstance(one, BatchPrompt)}
    answers = {one.join_key: one for one in found if isinstance(one, LogRecord)}
    assert set(prompts) == set(answers) == {"c-0", "c-1"}
    assert prompts["c-0"].group_key == prompts["c-1"].group_key is not None
    failed = [one.reason for one in found if isinstance(one, Rejected)]
    assert failed == [Reason.TOO_FEW, Reason.TOO_FEW, Reason.FAILED_REQUEST]


def test_candidates_of_gemini_are_answers_without_their_thoughts() -> None:
    for line in fixture_rows("gemini"):
        record = record_of("gemini", line)
        assert texts(record) == CITIES and record.timestamp == LATE_EVENING and record.model == "gemini-x"
    line["candidates"][0]["content"]["parts"].insert(0, {"text": "hmm", "thought": True})
    line["candidates"][1]["finish_reason"] = "SAFETY"
    line["candidates"][2]["content"]["parts"] = [{"function_call": {"name": "f"}}]
    record = record_of("gemini", line)
    assert texts(record) == ("Paris", "Lyon") and record.dropped == ("content_filter", "tool_call")


@pytest.mark.parametrize("dated", [True, False])
def test_a_record_without_a_time_is_of_the_day_of_its_folder(tmp_path: Path, dated: bool) -> None:
    folder = tmp_path / f"dt={DAY}" if dated else tmp_path
    write(folder / "a.jsonl", [*fixture_rows("fit"), fixture_rows("anthropic")[0]])
    found = items(read(tmp_path))
    if dated:
        assert {one.timestamp for one in found if not isinstance(one, NoAnswer | BatchPrompt)} == {
            1_795_132_800_000_000
        }
    else:
        assert told(read(tmp_path)) == [(1, "missing_field"), (2, "missing_field"), (3, "too_few_answers")]


def test_requests_that_two_runs_of_vllm_count_from_0_have_ids_of_their_own() -> None:
    (row,) = fixture_rows("vllm")
    other = {**row, "outputs": [{**row["outputs"][0], "text": "Lyon"}, *row["outputs"][1:]]}
    ids = [record_of("vllm", one).request_id for one in (row, other, dict(reversed(row.items())))]
    assert ids[0] == ids[2] != ids[1] and all(one.startswith("0-") for one in ids)
    assert record_of("vllm", {**row, "request_id": "chatcmpl-1"}).request_id == "chatcmpl-1"
    assert items_of("vllm", {**row, "finished": False}) == [NoAnswer("unfinished")]


def test_our_own_rows_for_a_fit_are_read() -> None:
    first, second = fixture_rows("fit")
    record = record_of("fit", first)
    assert (record.request_id, record.label, record.model, texts(record)) == ("q-1", 1, "unknown", CITIES)
    assert record_of("fit", second).model == "m"


ROW = {
    "call": {"no": 7, "at": "2026-11-20T23:59:01Z"},
    "ask": "?",
    "said": [{"a": {"t": "x"}}, {"a": {"t": "y"}}],
}
MAP = {"answers": "said", "text": "a.t", "question": "ask", "id": "call.no", "time": "call.at",
       "defaults": {"model": "m", "route": "bot"}}  # fmt: skip


def test_a_map_names_the_fields_of_any_other_row() -> None:
    reader = FormatReader(map=FieldMap.model_validate(MAP))
    (record,) = reader.items(ROW)
    assert isinstance(record, LogRecord) and texts(record) == ("x", "y")
    assert (record.request_id, record.model, record.route, record.prompt) == ("7", "m", "bot", '"?"')
    assert record.timestamp == LATE_EVENING and dict(reader.taken) == {"map": 1}
    (known,) = reader.items(row(1))
    assert isinstance(known, LogRecord) and known.request_id == "r-1"
    (bad,) = reader.items({"said": 7})
    assert isinstance(bad, Rejected) and bad.detail == "call.no is missing"


@pytest.mark.parametrize("change", [{"answer": "x"}, {"answers": "a..b"}, {"answers": ""}, {"id": None}])
def test_a_map_that_is_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FieldMap.model_validate({**MAP, **change})


def test_a_map_is_part_of_what_a_day_is(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps(MAP))
    given = {"logs": "l", "out": "o", "model": "m", "date": DAY}
    without, mapped = ScoreSettings(**given), ScoreSettings(**given, map=str(file))
    assert without.content()["map"] is None and mapped.content()["map"]["answers"] == "said"
    assert ScoreSettings(**mapped.model_dump(mode="json")).content() == mapped.content()


def test_the_reason_says_what_was_seen() -> None:
    (refused,) = FormatReader().items({"meta": {"x": {"object": "chat.completion"}}, "b": 1})
    assert isinstance(refused, Rejected) and refused.reason is Reason.UNKNOWN_FORMAT
    assert "2 keys ('meta', 'b')" in refused.detail and "a chat.completion under 'meta.x'" in refused.detail
    assert "--map" in refused.detail


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".json.zst"])
def test_json_over_many_lines_is_refused_as_one_file(tmp_path: Path, ending: str) -> None:
    rows = [row(i) for i in range(50)]
    for text in (json.dumps(rows, indent=1), json.dumps(rows[0], indent=4),
                 "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"):  # fmt: skip
        path = write(tmp_path / f"a{ending}", text.encode())
        for split_bytes in (2**30, 100):
            assert told(read(path, split_bytes=split_bytes)) == [(None, "unknown_format")]
    (refused,) = items(read(path))
    assert isinstance(refused, Rejected) and "pretty-printed" in refused.detail


def test_a_broken_first_line_costs_no_other_row(tmp_path: Path) -> None:
    for first in ("{", "[", "{ ", '["'):
        path = tmp_path / "a.jsonl"
        path.write_text("\n".join([first, *(json.dumps(row(i)) for i in range(3))]))
        assert told(read(path)) == [(1, "not_json")] and len(read(path)) == 4


def test_an_array_in_a_line_is_its_records(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row(i) for i in range(3)]))
    found = read(path)
    assert [line for line, _ in found] == [1, 1, 1] and not told(found)
