"""SGPU's own schema: what a row gives, and what is said of one that is wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sgpu.logs.formats import adapters
from sgpu.logs.records import LogRecord, Reason, Rejected, SampledAnswer
from tests.scoring import log_folders
from tests.scoring.log_fixtures import (
    CITIES,
    LATE_EVENING,
    fixture_rows,
    items_of,
    record_of,
    rejected_of,
    texts,
)

row = partial(log_folders.row, 1)


def test_the_fixture_is_read_as_a_person_reads_it() -> None:
    whole, mixed, filtered, no_list, no_id = items_of("sgpu", *fixture_rows("sgpu"))
    assert texts(whole) == CITIES
    assert isinstance(whole, LogRecord) and isinstance(mixed, LogRecord)
    assert (whole.request_id, whole.timestamp, whole.model, whole.route) == (
        "r-1", LATE_EVENING, "gpt-x-2026-08", "support-bot",
    )  # fmt: skip
    assert mixed.samples == (SampledAnswer("blue 🟦", "stop"), SampledAnswer("أزرق", "length"))
    assert (mixed.dropped, mixed.label, mixed.route) == (("content_filter", "empty"), 1, "colours")
    assert isinstance(filtered, Rejected) and filtered.reason is Reason.CONTENT_FILTER
    assert isinstance(no_list, Rejected) and no_list.reason is Reason.BAD_VALUE
    assert isinstance(no_id, Rejected) and no_id.reason is Reason.MISSING_FIELD


@pytest.mark.parametrize("field", ["request_id", "timestamp", "model", "samples"])
def test_each_required_field_is_named_when_it_is_missing(field: str) -> None:
    for missing in ({key: value for key, value in row().items() if key != field}, row(**{field: None})):
        rejected = rejected_of("sgpu", missing)
        assert rejected.reason is Reason.MISSING_FIELD
        assert rejected.detail == f"{field} is missing"


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"samples": {"text": "a"}},
        {"samples": ["a", "b"]},
        {"samples": [{"text": ["a"]}, {"text": "b"}]},
        {"label": 2},
        {"route": ["x"]},
        {"sampling": {"n": 0}},
        {"images": "a.png"},
        {"prompt": {"question": "a"}},
        {"timestamp": "soon"},
    ],
)
def test_a_bad_value_is_named_and_the_row_can_be_found_again(changes: dict[str, Any]) -> None:
    rejected = rejected_of("sgpu", row(**changes))
    assert rejected.reason is Reason.BAD_VALUE
    assert rejected.request_id == "r-1" and rejected.model == "m"
    assert next(iter(changes)) in rejected.detail or "answer" in rejected.detail


def test_a_sample_without_text_is_a_missing_field() -> None:
    assert rejected_of("sgpu", row(samples=[{"index": 0}, {"text": "b"}])).reason is Reason.MISSING_FIELD


def test_one_answer_is_too_few_where_several_were_asked_for() -> None:
    one = row(samples=[{"text": "a"}], sampling={"n": 5}, prompt="?")
    assert rejected_of("sgpu", one).reason is Reason.TOO_FEW


def test_json_text_in_columns_is_read_as_if_it_were_nested() -> None:
    written = row(samples='[{"text": "a"}, {"text": "b"}]', metadata='{"route": "x", "label": 0}')
    record = record_of("sgpu", written)
    assert texts(record) == ("a", "b") and (record.route, record.label) == ("x", 0)


def test_a_null_label_leaves_that_of_the_metadata() -> None:
    assert record_of("sgpu", row(label=None, metadata={"label": True})).label == 1


def test_the_rows_own_route_goes_before_that_of_its_metadata() -> None:
    assert record_of("sgpu", row(route="own", metadata={"route": "other"})).route == "own"


def test_a_question_with_images_has_a_fingerprint_but_no_prompt() -> None:
    plain = record_of("sgpu", row(prompt="What is this?"))
    with_image = record_of("sgpu", row(prompt="What is this?", images=[{"sha256": "ab", "uri": "s3://b/k"}]))
    assert plain.prompt == '"What is this?"' and with_image.prompt is None
    assert None not in (plain.prompt_sha256, with_image.prompt_sha256)
    assert plain.prompt_sha256 != with_image.prompt_sha256


def test_answers_to_a_list_of_prompts_are_no_set() -> None:
    rejected = rejected_of("sgpu", row(prompt=["Peru?", "Chile?"]))
    assert (rejected.reason, rejected.detail) == (
        Reason.BAD_VALUE,
        "the request asks 2 questions, not 1",
    )


def test_answers_to_one_question_share_a_key_whatever_their_seed() -> None:
    records = items_of("single", *fixture_rows("single")[:3])
    assert [texts(one) for one in records] == [("4",), ("four",), ("5",)]
    keys = {one.group_key for one in records if isinstance(one, LogRecord)}
    assert len(keys) == 1 and None not in keys
    assert len({one.request_id for one in records if isinstance(one, LogRecord)}) == 3


def test_a_group_id_in_the_row_and_in_its_metadata_are_one() -> None:
    nested, own = items_of("single", *fixture_rows("single")[3:5])
    assert isinstance(nested, LogRecord) and isinstance(own, LogRecord)
    assert nested.group_key == own.group_key is not None


def test_without_question_and_group_id_there_is_no_second_answer() -> None:
    rejected, empty = items_of("single", *fixture_rows("single")[5:])
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.TOO_FEW
    assert isinstance(empty, Rejected) and empty.reason is Reason.EMPTY


def test_a_row_that_asked_for_several_is_no_single_answer() -> None:
    row = {"request_id": "r", "timestamp": 1, "model": "m", "samples": [{"text": "a"}]}
    assert adapters()["single"].recognises({**row, "sampling": {"n": 1}})
    assert adapters()["sgpu"].recognises({**row, "sampling": {"n": 5}})
    assert not adapters()["single"].recognises({**row, "sampling": {"n": 5}})
