"""Fields of a log row: checked where they are read, and named when they are wrong.

Rows are untrusted. What a message shows of them is plain ASCII, cut to 60 characters, and never the text of a
prompt or an answer: of a value that could hold one, only its type is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sgpu.logs.records import Item, NoAnswer, Reason, Rejected
from sgpu.logs.rows.clock import micros_of
from sgpu.logs.rows.fault import RowFault, shown
from sgpu.logs.rows.json_text import structured

MAX_NAME = 512  # characters of an id, a model or a route
_COUNT = re.compile(r"[0-9]{1,9}")


def text_of(value: Any, name: str) -> str | None:
    """An id or a name; None where it is missing or blank. Raises RowFault."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise RowFault(Reason.BAD_VALUE, f"{name} is a {type(value).__name__}, not text")
    if len(value) > MAX_NAME:
        raise RowFault(Reason.BAD_VALUE, f"{name} has {len(value)} characters, above {MAX_NAME}")
    if not storable(value):
        raise RowFault(Reason.ENCODING, f"{name} holds half of a surrogate pair")
    return value if value.strip() else None


def needed_text(value: Any, name: str) -> str:
    """As `text_of`, for a field that must be there."""
    found = text_of(value, name)
    if found is None:
        raise RowFault(Reason.MISSING_FIELD, f"{name} is missing")
    return found


def label_of(value: Any) -> int | None:
    """1 right, 0 wrong, None not known. Raises RowFault."""
    if value is None:
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return int(value)
    raise RowFault(Reason.BAD_VALUE, f"label is {shown(value)}, outside 0, 1, true, false, null")


def count_of(value: Any, name: str) -> int | None:
    """A number of answers; None where it is missing. Raises RowFault."""
    if value is None:
        return None
    whole = int(value) if isinstance(value, str) and _COUNT.fullmatch(value) else value
    if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        raise RowFault(Reason.BAD_VALUE, f"{name} is {shown(value)}, not a whole number above 0")
    return whole


def mapping_of(value: Any) -> dict[str, Any]:
    """A JSON object, one that was written as a JSON string, or a Parquet map's pairs; else empty."""
    value = structured(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list) and value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        return {key: one for key, one in value if isinstance(key, str)}
    return {}


def storable(text: str) -> bool:
    """JSON may carry a lone "\\ud800", which is no character and cannot be stored as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked(read: Callable[[], Item], **known: Any) -> Item:
    """What ``read`` gives, or the Rejected row that its fault makes.

    ``known``: request_id, model, route, timestamp, join_key as they stand in the row, for the quarantine
    table.
    """
    try:
        return read()
    except RowFault as fault:
        return rejected(fault.reason, fault.detail, **known)
    except RecursionError:
        return rejected(Reason.BAD_VALUE, "nested too deeply to be read", **known)
    except Exception as error:
        # A row that no adapter foresaw must not end the night; the name of the error leads to the bug.
        return rejected(Reason.BAD_VALUE, f"unexpected {type(error).__name__} in an adapter", **known)


def rejected(reason: Reason, detail: str, *, timestamp: Any = None, **known: Any) -> Rejected:
    """A Rejected whose known fields are safe to store; those that are not are left out."""
    names = {name: text_or_none(value) for name, value in known.items()}
    try:
        time = micros_of(timestamp, "timestamp")
    except RowFault:
        time = None
    return Rejected(reason, detail, timestamp=time, **names)


def unfinished() -> NoAnswer:
    """A request that was still running when it was logged; its end comes with a later line."""
    return NoAnswer("unfinished")


def text_or_none(value: Any) -> str | None:
    """An id or a name that can be stored; None for anything else."""
    try:
        return text_of(value, "")
    except RowFault:
        return None
