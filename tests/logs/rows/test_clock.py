"""Times: every way of writing one moment gives the same microseconds; what is no time is named."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpu.logs.records import Reason
from sgpu.logs.rows.clock import micros_of, start_of
from sgpu.logs.rows.fault import RowFault

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
