"""Fields of a log row: checked where they are read, and named when they are wrong.

Rows are untrusted. What a message shows of them is plain ASCII, cut to 60 characters, and never the text of a
prompt or an answer: of a value that could hold one, only its type is told. A row's fault is a reason for the
quarantine table and a detail without log content. Clock times are microseconds since 1970 in UTC. JSON is
read as logs hold it: one text, one value, no key twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sgpu.logs.records import UNDATED, Item, LogFault, Reason, Rejected
from sgpu.storage.json_lines import RepeatedKeyError, parsed_json, storable

DAY = 86_400_000_000  # microseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LATEST = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?")
# Seconds, milliseconds, microseconds, nanoseconds: each a thousand times the one before. In every unit the
# years 1973 to 5138 fall into a band of their own, so that the size of the number tells its unit.
_UNITS = ((10**11, 1_000_000, 1), (10**14, 1_000, 1), (10**17, 1, 1), (10**20, 1, 1_000))
MAX_NAME = 512  # characters of an id, a model or a route
_COUNT = re.compile(r"[0-9]{1,9}")


class RowFault(LogFault):
    """Raised where a row is read; becomes a Rejected. ``detail`` names the field, the value and the bound."""


def show_value(value: Any) -> str:
    """Return a value for a message: ASCII, shortened; of a container, which may hold an answer, the type."""
    if isinstance(value, dict | list | tuple | bytes):
        return f"a {type(value).__name__}"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
    time = _datetime_of(value, name) if isinstance(value, str | datetime) else value
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        micros: int | None = (aware - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(time, bool) or not isinstance(time, int | float):
        raise RowFault(Reason.BAD_VALUE, f"{name} is {show_value(value)}, not a time")
    else:
        micros = _of_number(time)
    # Also of a text: its offset may lead out of the years that a date has.
    if micros is None or not _EARLIEST <= micros < _LATEST:
        raise RowFault(Reason.BAD_VALUE, f"{name} is {show_value(value)}, outside the years 1 to 9998")
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
    raise RowFault(Reason.BAD_VALUE, f"{name} is {show_value(value)}, not an RFC 3339 time")


def _of_number(value: int | float) -> int | None:
    """None for what is below no bound, infinity and NaN among them."""
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


def parsed(text: str) -> Any:
    """The value of a JSON text. Raises RowFault, whose detail never shows the text."""
    try:
        return parsed_json(text)
    except RepeatedKeyError as error:
        raise RowFault(Reason.BAD_VALUE, str(error)) from None
    except json.JSONDecodeError as error:
        raise RowFault(Reason.NOT_JSON, f"{error.msg} at character {error.pos} of the line") from None
    except RecursionError:
        raise RowFault(Reason.BAD_VALUE, "nested too deeply to be read") from None
    except ValueError:
        # The one ValueError that is left: an integer of more digits than Python converts.
        raise RowFault(Reason.BAD_VALUE, "an integer has more than 4300 digits") from None


def structured(value: Any) -> Any:
    """What a JSON string holds, if it is a list or an object; else the value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return parsed(value)
        except RowFault:
            return value
    return value


def bounded_text(value: Any, name: str, most: int, too_long: Reason) -> str:
    """A text of up to ``most`` characters that can be stored. Raises RowFault."""
    if not isinstance(value, str):
        raise RowFault(Reason.BAD_VALUE, f"{name} is a {type(value).__name__}, not text")
    if len(value) > most:
        raise RowFault(too_long, f"{name} has {len(value)} characters, above {most}")
    if not storable(value):
        raise RowFault(Reason.ENCODING, f"{name} contains an invalid Unicode surrogate")
    return value


def text_of(value: Any, name: str) -> str | None:
    """An id or a name; None where it is missing or blank. Raises RowFault."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        return None
    text = bounded_text(value, name, MAX_NAME, Reason.BAD_VALUE)
    return text if text.strip() else None


def needed_text(value: Any, name: str) -> str:
    """As `text_of`, for a field that must be there."""
    text = text_of(value, name)
    if text is None:
        raise RowFault(Reason.MISSING_FIELD, f"{name} is missing")
    return text


def label_of(value: Any) -> int | None:
    """1 right, 0 wrong, None not known. Raises RowFault."""
    if value is None:
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return int(value)
    raise RowFault(Reason.BAD_VALUE, f"label is {show_value(value)}, outside 0, 1, true, false, null")


def count_of(value: Any, name: str) -> int | None:
    """A number of answers; None where it is missing. Raises RowFault."""
    if value is None:
        return None
    whole = int(value) if isinstance(value, str) and _COUNT.fullmatch(value) else value
    if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        raise RowFault(Reason.BAD_VALUE, f"{name} is {show_value(value)}, not a whole number above 0")
    return whole


def mapping_of(value: Any) -> dict[str, Any]:
    """A JSON object, one that was written as a JSON string, or a Parquet map's pairs; else empty."""
    value = structured(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list) and value and all(isinstance(kv, tuple) and len(kv) == 2 for kv in value):
        return {key: item for key, item in value if isinstance(key, str)}
    return {}


def objects_in(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def objects_of(value: Any, name: str) -> list[Mapping[str, Any]]:
    """A list of objects and of nothing else. Raises RowFault."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise RowFault(Reason.BAD_VALUE, f"{name} is a {type(value).__name__}, not a list of objects")
    return value


def identity_of(
    row: Mapping[str, Any],
    id: str,
    time: str,
    model: str = "model",
    route: str = "route",
    *,
    undated: bool = False,
    unnamed: str | None = None,
) -> dict[str, Any]:
    """``request_id``, ``timestamp``, ``model`` and ``route`` of a row, checked, under these names.

    ``id``, ``time``, ``model`` and ``route``: what a fault calls them. ``undated``: a row may have no time.
    ``unnamed``: the model of rows that name none. Raises RowFault.
    """
    when, model_of = row.get("timestamp"), text_of if unnamed else needed_text
    return {
        "request_id": needed_text(row.get("request_id"), id),
        "timestamp": UNDATED if undated and when is None else micros_of(when, time),
        "model": model_of(row.get("model"), model) or unnamed,
        "route": text_of(row.get("route"), route),
    }


def checked(read: Callable[[], Item], **identity: Any) -> Item:
    """What ``read`` gives, or the Rejected row that its fault makes.

    ``identity``: request_id, model, route, timestamp, join_key as they stand in the row, for the quarantine
    table.
    """
    try:
        return read()
    except RowFault as fault:
        return rejected(fault.reason, fault.detail, **identity)
    except RecursionError:
        return rejected(Reason.BAD_VALUE, "nested too deeply to be read", **identity)
    except Exception as error:
        # A row that no adapter foresaw must not end the night; the name of the error leads to the bug.
        return rejected(Reason.BAD_VALUE, f"unexpected {type(error).__name__} in an adapter", **identity)


def rejected(reason: Reason, detail: str, *, timestamp: Any = None, **identity: Any) -> Rejected:
    """A Rejected whose known fields are safe to store; those that are not are left out."""
    names = {name: text_or_none(value) for name, value in identity.items()}
    try:
        time = micros_of(timestamp, "timestamp")
    except RowFault:
        time = None
    return Rejected(reason, detail, timestamp=time, **names)


def text_or_none(value: Any) -> str | None:
    """An id or a name that can be stored; None for anything else."""
    try:
        return text_of(value, "")
    except RowFault:
        return None
