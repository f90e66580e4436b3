"""Values of a row of answers or questions: checked, typed, or refused with a reason and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgpu.storage.json_lines import MAX_TEXT, storable

SHOWN_CHARS = 60
LABEL_REMEDY = "Use 1 for right, 0 for wrong."


class RowError(ValueError):
    """A row that cannot be used: ``reason`` (value and bound) and ``remedy``. The others go on."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


def quote(value: Any) -> str:
    """Return a value for a message, shortened: it is not ours and may be long."""
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."


def check_text(value: Any, name: str, allow_blank: bool = False) -> str:
    """Return a text that can be stored, not blank unless it may be. Raises RowError."""
    if not isinstance(value, str):
        raise RowError(f"{name} is {quote(value)}, not text", f"Give {name} as a string.")
    if len(value) > MAX_TEXT:
        raise RowError(
            f"{name} has {len(value)} characters, above {MAX_TEXT}", "Shorten it or leave the row out."
        )
    if not allow_blank and not value.strip():
        raise RowError(f"{name} is blank", f"Give every row a {name}.")
    if not storable(value):
        raise RowError(f"{name} contains an invalid Unicode surrogate", "Write the text as valid Unicode.")
    return value


def require_text(values: Mapping[str, Any], column: str) -> str:
    """Return the text in ``column``, which must not be blank. Raises RowError."""
    return check_text(values.get(column), column)


def id_of(values: Mapping[str, Any], column: str) -> str:
    """The whole number or the text in ``column`` as text. Raises RowError."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return check_text(value, column)


def list_of(value: Any, column: str) -> list[Any]:
    """Raises RowError for anything but a list."""
    if not isinstance(value, list):
        raise RowError(f"{column} is {quote(value)}, not a list", f"Give {column} as a list of strings.")
    return value


def references_of(value: Any, column: str) -> tuple[str, ...]:
    """The accepted answers in a list, without blanks and repetitions, in order. Raises RowError."""
    filled = [item for item in list_of(value, column) if not isinstance(item, str) or item.strip()]
    texts = tuple(dict.fromkeys(check_text(item, column).strip() for item in filled))
    if not texts:
        raise RowError(f"{column} has no answer", "Give at least one accepted answer, or leave the row out.")
    return texts


def number_of(values: Mapping[str, Any], column: str, below: int | None = None) -> int:
    """The whole number >= 0 in ``column``, also from its digits. Raises RowError."""
    value = values.get(column)
    digits = isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()
    if isinstance(value, bool) or not (isinstance(value, int) or digits):
        raise RowError(f"{column} is {quote(value)}, not a whole number", f"Give {column} as a number >= 0.")
    number = int(str(value))
    if number < 0 or (below is not None and number >= below):
        bound = f"0 to {below - 1}" if below is not None else "0 or more"
        raise RowError(f"{column} is {number}, outside {bound}", "Correct the value, or leave the row out.")
    return number


def check_label(value: Any) -> int | None:
    """Return 1 for right, 0 for wrong, None for not known. Raises RowError."""
    if value is None:
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return int(value)
    raise RowError(f"label is {quote(value)}, outside 0, 1, true, false, null", LABEL_REMEDY)


def choice_of(values: Mapping[str, Any], column: str, names: tuple[str, ...]) -> str | None:
    """Return the one of ``names`` in ``column``, None if there is no value. Raises RowError."""
    value = values.get(column)
    if value is None or (isinstance(value, str) and value in names):
        return value
    raise RowError(
        f"{column} is {quote(value)}, outside {', '.join(names)}", "Name one of them, or leave it out."
    )
