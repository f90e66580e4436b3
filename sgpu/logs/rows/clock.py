"""Clock times of log rows, as microseconds since 1970 in UTC, and what counts as a broken clock."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sgpu.logs.records import Reason
from sgpu.logs.rows.fault import RowFault, shown

DAY = 86_400_000_000  # microseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LATEST = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?")
# Seconds, milliseconds, microseconds, nanoseconds: each a thousand times the one before. In every unit the
# years 1973 to 5138 fall into a band of their own, so that the size of the number tells its unit.
_UNITS = ((10**11, 1_000_000, 1), (10**14, 1_000, 1), (10**17, 1, 1), (10**20, 1, 1_000))


def day_of(micros: int) -> date:
    """The day (UTC) of a time in microseconds since 1970."""
    return (_EPOCH + timedelta(microseconds=micros)).date()


def micros_of(value: Any, name: str) -> int:
    """Microseconds since 1970. Raises RowFault.

    Takes RFC 3339 text (no zone: UTC), a datetime (a Parquet column; no zone: UTC), and a number, or text
    that is one, of seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by its size.
    """
    if value is None or value == "":
        raise RowFault(Reason.MISSING_FIELD, f"{name} is missing")
    found = _datetime_of(value, name) if isinstance(value, str | datetime) else value
    if isinstance(found, datetime):
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        micros: int | None = (aware - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(found, bool) or not isinstance(found, int | float):
        raise RowFault(Reason.BAD_VALUE, f"{name} is {shown(value)}, not a time")
    else:
        micros = _of_number(found)
    # Also of a text: its offset may lead out of the years that a date has.
    if micros is None or not _EARLIEST <= micros < _LATEST:
        raise RowFault(Reason.BAD_VALUE, f"{name} is {shown(value)}, outside the years 1 to 9998")
    return micros


def _datetime_of(value: str | datetime, name: str) -> datetime | int | float:
    if isinstance(value, datetime):
        return value
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    try:
        if _DATE_TIME.match(text):
            return datetime.fromisoformat(text.upper())
    except ValueError:
        pass
    raise RowFault(Reason.BAD_VALUE, f"{name} is {shown(value)}, not an RFC 3339 time")


def _of_number(value: int | float) -> int | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    for bound, factor, divisor in _UNITS:
        if abs(value) < bound:
            # A float of seconds keeps microseconds only if it is rounded; an int must never become a float.
            if isinstance(value, float):
                return round(value * factor / divisor)
            return value * factor // divisor
    return None


def start_of(day: date) -> int:
    """The first microsecond of a UTC day."""
    return (datetime(day.year, day.month, day.day, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


FIRST_TIME = start_of(date(2015, 1, 1))  # before, nobody logged answers of language models
LAST_TIME = start_of(date(2100, 1, 1))
