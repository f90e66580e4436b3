"""Which adapter takes a row, that all rows are accounted for, and that no input makes an adapter raise."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu.errors import UsageError
from sgpu.logs.formats import COLUMNS, FormatReader, adapters
from sgpu.logs.records import Item, Reason, Rejected
from tests.scoring.log_fixtures import FILES, fixture_rows

# The words that the adapters look for, so that what is drawn reaches into them.
KEYS = [
    "request_id", "timestamp", "model", "samples", "text", "index", "finish_reason", "sampling", "n",
    "metadata", "route", "label", "prompt", "messages", "images", "sha256", "group_id", "id", "object",
    "created", "choices", "message", "content", "refusal", "tool_calls", "output", "type", "custom_id",
    "body", "response", "error", "status_code", "url", "resourceSpans", "scopeSpans", "spans", "traceId",
    "spanId", "trace_id", "span_id", "context", "attributes", "key", "value", "stringValue", "arrayValue",
    "kvlistValue", "values", "events", "name", "gen_ai.output.messages", "gen_ai.input.messages",
    "gen_ai.operation.name", "parts", "startTimeUnixNano", "info", "data", "assessments", "feedback",
    "tags", "mlflow.spanType", "mlflow.spanOutputs", "generations", "status", "parent_span_id", "trace",
    "schema_version", "resource", "code", "eventName", "gen_ai.completion.0.content", "output.value",
    "gen_ai.prompt.0.content", "llm.output_messages.0.message.content", "gen_ai.request.model",
    "openinference.span.kind",
]  # fmt: skip
WORDS = [
    "gen_ai.choice", "gen_ai.user.message", "LLM",
    "chat.completion", "chat", "stop", "assistant", "text", "message", '"LLM"', "2026-11-20T00:00:00Z",
    "/v1/completions", '[{"a": 1}]', '{"text": "x"}', "\ud800", "a\x00b", "",
]  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)
ROWS = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), VALUES, max_size=10)


def check(items: list[Item]) -> None:
    """At least one item, all of a known kind, none a bug, and all that is stored can be stored."""
    assert items
    for item in items:
        assert isinstance(item, get_args(Item))
        if isinstance(item, Rejected):
            assert "unexpected" not in item.detail, item
            assert item.detail.isascii() and len(item.detail) < 300
            for name in (item.request_id, item.model, item.route, item.join_key):
                assert name is None or name.encode()


@pytest.mark.parametrize("name", FILES)
def test_every_fixture_is_recognised_by_its_own_adapter_alone(name: str) -> None:
    for row in fixture_rows(name):
        assert [adapter for adapter, one in adapters().items() if one.recognises(row)] == [FILES[name]]


def test_auto_takes_rows_of_all_formats_in_any_order_and_says_which() -> None:
    rows = [row for name in FILES for row in fixture_rows(name)]
    together, reader = list(zip(*[iter(rows)] * 5, strict=False)), FormatReader()
    shuffled = [row for part in zip(*together, strict=True) for row in part]
    for row in shuffled:
        check(list(reader.items(row)))
    assert sum(reader.taken.values()) == len(shuffled)
    assert set(reader.taken) == set(FILES.values())


def test_auto_reads_each_row_as_its_own_format_does() -> None:
    reader = FormatReader()
    for name in [*FILES, *FILES]:
        for row in fixture_rows(name):
            assert list(reader.items(row)) == list(adapters()[FILES[name]].items(row))


# What applications add to rows of their own: each is a mark of another format.
ADDED = {
    "traceId": "ab" * 16, "spanId": "cd" * 8, "trace_id": "ab" * 16, "span_id": "cd" * 8,
    "observed_timestamp": "2026-11-20T00:00:00Z", "request_id": "r", "timestamp": "2026-11-20T00:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize(("first", "then"), list(permutations(FILES, 2)))
def test_a_format_is_told_whatever_came_before_and_whatever_an_application_added(
    first: str, then: str
) -> None:
    reader = FormatReader()
    for before in fixture_rows(first):
        list(reader.items(before))
        for row in fixture_rows(then):
            # To telemetry nobody adds, and a row of our own that lacks its id is to be refused as such.
            marked = row if FILES[then] in ("otel", "mlflow") else {**ADDED, **row}
            assert list(reader.items(marked)) == list(adapters()[FILES[then]].items(marked))


@given(ROWS, ROWS)
def test_what_a_row_is_taken_for_does_not_depend_on_the_row_before(
    before: dict[str, Any], row: dict[str, Any]
) -> None:
    reader = FormatReader()
    list(reader.items(before))
    assert repr(list(reader.items(row))) == repr(list(FormatReader().items(row)))  # NaN is not NaN


def test_a_named_otel_does_not_pass_over_rows_that_are_no_telemetry() -> None:
    for row in fixture_rows("sgpu"):
        (item,) = FormatReader("otel").items(row)
        assert isinstance(item, Rejected) and item.reason is Reason.UNKNOWN_FORMAT


def test_a_row_of_no_format_is_unknown_and_shows_nothing() -> None:
    (item,) = FormatReader().items({"question": "secret", "answer": "secret", "request_id": 7})
    assert isinstance(item, Rejected) and item.reason is Reason.UNKNOWN_FORMAT
    assert "secret" not in item.detail and item.request_id == "7"


def test_a_named_format_takes_every_row_and_says_what_is_missing() -> None:
    reader = FormatReader("sgpu")
    (item,) = reader.items({"question": "?"})
    assert isinstance(item, Rejected) and item.detail == "request_id is missing"


def test_a_format_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Did you mean 'otel'"):
        FormatReader("otell")


@given(ROWS)
def test_no_row_makes_an_adapter_raise_or_vanishes(row: dict[str, Any]) -> None:
    check(list(FormatReader().items(row)))
    for adapter in adapters().values():
        check(list(adapter.items(row)))


@given(st.sampled_from(sorted(FILES)), st.data())
def test_no_change_of_a_real_row_makes_an_adapter_raise(name: str, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(fixture_rows(name)))
    place = row
    for _ in range(data.draw(st.integers(0, 8))):
        inner = list(place.values()) if isinstance(place, dict) else place
        nested = [one for one in inner if isinstance(one, dict | list) and one]
        if not nested:
            break
        place = data.draw(st.sampled_from(nested))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    place[data.draw(st.sampled_from(keys))] = data.draw(VALUES)
    for adapter in (adapters()[FILES[name]], FormatReader()):
        check(list(adapter.items(json.loads(json.dumps(row)))))


@pytest.mark.parametrize("name", sorted(FILES))
def test_deep_nesting_is_refused_in_every_format(name: str) -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    for key in ("messages", "metadata", "samples", "choices", "attributes", "body", "data", "resourceSpans"):
        for row in fixture_rows(name):
            check(list(adapters()[FILES[name]].items({**row, key: deep})))


FIXTURES = sorted((Path(__file__).parents[2] / "scoring" / "fixtures").rglob("*.jsonl"))


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_no_format_needs_a_column_that_is_not_read(file: Path) -> None:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            cut = {key: value for key, value in record.items() if key in COLUMNS}
            assert list(FormatReader().items(cut)) == list(FormatReader().items(record))
