"""MLflow traces: the fixture, and what a real tracking store gives back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.logs.records import LogRecord, NoAnswer, Reason, Rejected
from tests.scoring.log_fixtures import CITIES, fixture_rows, items_of, record_of, rejected_of, texts


def test_the_fixture_is_read_as_a_person_reads_it() -> None:
    plain, nested, failed, single, other, function = items_of("mlflow", *fixture_rows("mlflow"))
    assert texts(plain) == CITIES
    assert isinstance(plain, LogRecord) and (plain.route, plain.model) == ("support-bot", "gpt-x-2026-08")
    assert plain.request_id == "tr-9176b45f696ddd535f6cce521d3e22e3:DeBNHFV3z4I="
    assert plain.timestamp == 1_795_309_596_938_370
    assert texts(nested) == ("blue", "red")
    assert isinstance(failed, Rejected) and failed.reason is Reason.FAILED_REQUEST
    assert isinstance(single, LogRecord) and single.group_key is not None
    assert other == NoAnswer("trace_without_model_call")
    assert texts(function) == ("blue", "red", "blue")


def test_a_persons_label_goes_before_a_judges() -> None:
    row = fixture_rows("mlflow")[0]
    assert record_of("mlflow", row).label == 1
    row["info"]["assessments"] = [
        one for one in row["info"]["assessments"] if one["source"]["source_type"] == "LLM_JUDGE"
    ]
    assert record_of("mlflow", row).label == 0
    row["info"]["assessments"][0]["valid"] = False
    assert record_of("mlflow", row).label is None


def with_calls(count: int, **changes: Any) -> dict[str, Any]:
    """The first trace of the fixture, its request given ``count`` times."""
    row = fixture_rows("mlflow")[0]
    root, call = row["data"]["spans"]
    calls = [{**call, "span_id": f"c{i}", **changes} for i in range(count)]
    row["data"]["spans"] = [root, *calls]
    return row


def test_each_request_of_a_trace_is_a_record_and_the_label_of_the_trace_is_of_none() -> None:
    found = items_of("mlflow", with_calls(2))
    assert [texts(one) for one in found] == [CITIES, CITIES]
    assert [one.label for one in found if isinstance(one, LogRecord)] == [None, None]
    assert len({one.request_id for one in found if isinstance(one, LogRecord)}) == 2


def test_a_ring_of_spans_loses_none() -> None:
    row = with_calls(2)
    row["data"]["spans"][1]["parent_span_id"], row["data"]["spans"][2]["parent_span_id"] = "c1", "c0"
    assert [texts(one) for one in items_of("mlflow", row)] == [CITIES, CITIES]


def test_a_trace_that_still_runs_is_counted() -> None:
    row = with_calls(1, attributes={"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": "null"})
    row["info"]["state"] = "IN_PROGRESS"
    assert items_of("mlflow", row) == [NoAnswer("unfinished")]
    row["info"]["state"] = "OK"
    assert items_of("mlflow", row) == [NoAnswer("span_without_content")]


def test_outputs_of_an_unknown_shape_are_refused_without_showing_them() -> None:
    changes = {"mlflow.spanType": '"LLM"', "mlflow.llm.model": '"m"', "mlflow.spanOutputs": '{"x": "secret"}'}
    rejected = rejected_of("mlflow", with_calls(1, attributes=changes))
    assert rejected.reason is Reason.UNKNOWN_FORMAT and "secret" not in rejected.detail


def with_attributes(inputs: Any, outputs: Any) -> dict[str, Any]:
    """The first trace of the fixture, its one request with other inputs and outputs."""
    given = {"mlflow.spanInputs": json.dumps(inputs), "mlflow.spanOutputs": json.dumps(outputs)}
    return with_calls(1, attributes={"mlflow.spanType": '"LLM"', "mlflow.llm.model": '"m"', **given})


def test_the_pieces_of_a_streamed_answer_are_no_set() -> None:
    pieces = ["The", " capital", " is", " Lima", "."]
    rejected = rejected_of("mlflow", with_attributes({"question": "Capital of Peru?"}, pieces))
    assert rejected.reason is Reason.BAD_VALUE and "5 texts" in rejected.detail


@pytest.mark.parametrize("inputs", [{"prompt": ["Peru?", "Chile?"]}, ["Peru?", "Chile?"]])
def test_answers_to_a_list_of_prompts_are_no_set(inputs: Any) -> None:
    choices = [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(CITIES[:2])]
    rejected = rejected_of("mlflow", with_attributes(inputs, {"choices": choices}))
    assert rejected.reason is Reason.BAD_VALUE and rejected.detail == "the request asks 2 questions, not 1"


def test_answers_after_different_responses_are_not_grouped() -> None:
    content = [{"type": "output_text", "text": "hi"}]
    outputs = {"output": [{"type": "message", "content": content}]}
    inputs = ({"model": "m", "input": "yes", "previous_response_id": one} for one in "AB")
    first, second = (record_of("mlflow", with_attributes(one, outputs)).group_key for one in inputs)
    assert first is not None and second is not None and first != second


def test_a_trace_without_spans_is_named() -> None:
    row = fixture_rows("mlflow")[0]
    row["data"] = {}
    rejected = rejected_of("mlflow", row)
    assert rejected.reason is Reason.MISSING_FIELD


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow with a SQLite store of its own and one experiment."""
    import mlflow

    # By the environment alone: what MLflow's setters are told stays for all later tests.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", mlflow.create_experiment("logs", f"{tmp_path}/artifacts"))
    return mlflow


def logged(mlflow: Any) -> str:
    with mlflow.start_span("answer") as root:
        mlflow.update_current_trace(tags={"route": "bot"})
        with mlflow.start_span("call", span_type="CHAT_MODEL") as call:
            call.set_inputs({"model": "m", "messages": [{"role": "user", "content": "?"}], "n": 4})
            choices = [{"index": i, "message": {"content": text}} for i, text in enumerate(CITIES)]
            call.set_outputs({"id": "c", "model": "m-2026", "choices": choices})
    mlflow.flush_trace_async_logging()
    mlflow.log_feedback(trace_id=root.trace_id, name="correct", value=False)
    return str(root.trace_id)


def test_what_a_store_gives_back_is_read_as_json_and_as_parquet(store: Any, tmp_path: Path) -> None:
    trace_id = logged(store)
    exported = record_of("mlflow", json.loads(store.get_trace(trace_id).to_json()))
    assert texts(exported) == CITIES
    assert (exported.route, exported.model, exported.label) == ("bot", "m-2026", 0)
    assert exported.request_id.startswith(f"{trace_id}:")
    frame = store.search_traces(locations=[store.get_experiment_by_name("logs").experiment_id])
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "traces.parquet")
    (row,) = pq.read_table(tmp_path / "traces.parquet").to_pylist()
    assert record_of("mlflow", row) == exported
    del row["trace"]  # the columns alone hold the same
    assert record_of("mlflow", row) == exported
