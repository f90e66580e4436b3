"""Fields: what passes, what is named as wrong, and that nothing escapes as another error."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu.logs.records import NoAnswer, Reason, Rejected
from sgpu.logs.rows.fields import (
    RowFault,
    checked,
    count_of,
    label_of,
    mapping_of,
    micros_of,
    parsed,
    show_value,
    start_of,
    text_of,
)


def test_an_id_may_be_a_number() -> None:
    assert text_of(17, "id") == "17"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_blank_name_is_a_missing_one(value: Any) -> None:
    assert text_of(value, "id") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, Reason.BAD_VALUE),
        (1.5, Reason.BAD_VALUE),
        ([], Reason.BAD_VALUE),
        ("x" * 513, Reason.BAD_VALUE),
        (10**600, Reason.BAD_VALUE),
        ("\udc00", Reason.ENCODING),
    ],
)
def test_a_name_that_cannot_be_stored_is_refused(value: Any, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        text_of(value, "id")
    assert caught.value.reason is reason


@pytest.mark.parametrize(("value", "label"), [(True, 1), (0, 0), (1.0, 1), (None, None)])
def test_labels_are_read(value: Any, label: int | None) -> None:
    assert label_of(value) == label


@pytest.mark.parametrize("value", [2, "1", 0.5, float("nan"), []])
def test_another_label_is_refused(value: Any) -> None:
    with pytest.raises(RowFault, match="label is"):
        label_of(value)


def test_counts_may_be_text_but_not_below_one() -> None:
    assert (count_of("20", "n"), count_of(3, "n"), count_of(None, "n")) == (20, 3, None)
    for value in (0, -1, 1.5, True, "x"):
        with pytest.raises(RowFault):
            count_of(value, "n")


def test_objects_are_read_from_json_text_and_from_parquet_maps() -> None:
    expected = {"route": "a"}
    for value in ({"route": "a"}, '{"route": "a"}', [("route", "a")]):
        assert mapping_of(value) == expected
    for value in (None, "a", "{", [1], 7):
        assert mapping_of(value) == {}


def test_a_shown_value_is_ascii_short_and_no_container() -> None:
    assert len(show_value("ä" * 500)) == 60 and show_value("ä" * 500).isascii()
    assert show_value({"answer": "Paris"}) == "a dict"


def test_a_refused_row_keeps_what_can_be_stored_of_its_identity() -> None:
    def read() -> NoAnswer:
        raise RowFault(Reason.TOO_MANY, "d")

    found = checked(read, request_id="r", model={"a": 1}, route="\ud800", timestamp="2026-11-20T00:00:00Z")
    assert found == Rejected(Reason.TOO_MANY, "d", "r", None, None, 1_795_132_800_000_000)


@pytest.mark.parametrize("error", [KeyError("secret"), RecursionError(), ValueError("secret")])
def test_an_error_that_was_not_foreseen_refuses_the_row_only(error: Exception) -> None:
    def read() -> NoAnswer:
        raise error

    found = checked(read)
    assert isinstance(found, Rejected) and found.reason is Reason.BAD_VALUE
    assert "secret" not in found.detail


MOMENT = 1_795_219_141_123_456  # 2026-11-20T23:59:01.123456Z


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-20T23:59:01.123456Z",
        "2026-11-20T23:59:01.123456789Z",
        "2026-11-20t23:59:01.123456z",
        "2026-11-20 23:59:01.123456",
        "2026-11-21T01:59:01.123456+02:00",
        " 2026-11-20T23:59:01.123456+00:00 ",
        datetime(2026, 11, 20, 23, 59, 1, 123456),
        datetime(2026, 11, 20, 18, 59, 1, 123456, timezone(timedelta(hours=-5))),
        MOMENT,
        MOMENT * 1000 + 789,
        str(MOMENT * 1000),
        1_795_219_141.123456,
        "1795219141.123456",
        1_795_219_141_123.456,
    ],
)
def test_every_way_of_writing_a_moment_is_that_moment(written: Any) -> None:
    assert micros_of(written, "t") == MOMENT


@pytest.mark.parametrize(("written", "seconds"), [(1_795_219_141, 0), (1_795_219_141_123, 123_000)])
def test_seconds_and_milliseconds_are_told_apart_by_their_size(written: int, seconds: int) -> None:
    assert micros_of(written, "t") == 1_795_219_141_000_000 + seconds


@given(st.datetimes(datetime(1973, 4, 1), datetime(2200, 1, 1)), st.sampled_from(["s", "ms", "us", "ns"]))
def test_numbers_are_read_as_numpy_counts_them(moment: datetime, unit: str) -> None:
    counted = np.datetime64(moment).astype(f"datetime64[{unit}]")
    expected = counted.astype("datetime64[us]").astype(np.int64)
    assert micros_of(int(counted.astype(np.int64)), "t") == expected


@pytest.mark.parametrize(
    "written",
    [
        True,
        float("nan"),
        float("inf"),
        10**20,
        -(10**30),
        10**400,
        [],
        {"t": 1},
        b"2026",
        "yesterday",
        "2026-11-20",
        "2026-13-20T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-11-20T25:00:00Z",
        "1e9",
        "٢٠٢٦",
        "-5",
    ],
)
def test_what_is_no_time_is_a_bad_value(written: Any) -> None:
    with pytest.raises(RowFault) as caught:
        micros_of(written, "timestamp")
    assert caught.value.reason is Reason.BAD_VALUE
    assert "timestamp is" in caught.value.detail and len(caught.value.detail) < 150


@pytest.mark.parametrize("written", [None, ""])
def test_no_time_is_a_missing_field(written: Any) -> None:
    with pytest.raises(RowFault) as caught:
        micros_of(written, "timestamp")
    assert caught.value.reason is Reason.MISSING_FIELD


def test_a_day_starts_at_midnight_in_utc() -> None:
    assert start_of(date(2026, 11, 20)) == datetime(2026, 11, 20, tzinfo=UTC).timestamp() * 1e6


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"]
)
def test_a_time_that_its_offset_takes_out_of_all_years_is_refused(text: str) -> None:
    with pytest.raises(RowFault, match="outside the years 1 to 9998"):
        micros_of(text, "timestamp")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", Reason.NOT_JSON),
        ('{"secret": "answer"', Reason.NOT_JSON),
        ('{"a": "raw \x00 byte"}', Reason.NOT_JSON),
        ("{} {}", Reason.NOT_JSON),
        ('{"secret": 1, "secret": 2}', Reason.BAD_VALUE),
        ('{"a": [{"secret": 1, "secret": 1}]}', Reason.BAD_VALUE),
        ("[" * 100_000 + "]" * 100_000, Reason.BAD_VALUE),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, Reason.BAD_VALUE),
        ("[" + "9" * 5_000 + "]", Reason.BAD_VALUE),
    ],
)
def test_what_cannot_be_read_is_told_without_its_content(text: str, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        parsed(text)
    assert caught.value.reason is reason
    assert "secret" not in caught.value.detail and "answer" not in caught.value.detail


def test_the_same_key_in_two_objects_is_fine() -> None:
    text = '{"a": {"k": 1}, "b": [{"k": 2}, {"k": "\\u0000"}], "n": NaN}'
    assert repr(parsed(text)) == repr(json.loads(text))
