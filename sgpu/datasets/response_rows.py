"""One record of a response file: checked, typed, or refused with a reason and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 100_000
MIN_ANSWERS = 2
SPLITS = ("train", "validation", "test")
REQUIRED = ("question_id", "question", "answers")
OPTIONAL = ("references", "token_logprobs", "label", "split", "group")


class RowError(ValueError):
    """A record that cannot be used: ``reason`` (value and bound) and ``remedy``."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class ResponseRow:
    """A checked record; equal content compares equal. ``label`` None: not given."""

    question_id: str
    question: str
    answers: tuple[str, ...]
    references: tuple[str, ...] = ()
    token_logprobs: tuple[tuple[float, ...], ...] | None = None
    label: int | None = None
    split: str | None = None
    group: str | None = None


def parse_row(record: dict[str, Any]) -> ResponseRow:
    """The typed row of a raw record; columns that are not known are ignored. Raises RowError."""
    answers = _strings(record, "answers")
    if len(answers) < MIN_ANSWERS:
        raise RowError(
            f"answers has {len(answers)} entries, below {MIN_ANSWERS}",
            "Sample several answers to each question; agreement needs at least two.",
        )
    return ResponseRow(
        question_id=_question_id(record),
        question=_text(record.get("question"), "question", allow_blank=False),
        answers=answers,
        references=_strings(record, "references") if record.get("references") is not None else (),
        token_logprobs=_logprobs(record.get("token_logprobs"), len(answers)),
        label=_label(record.get("label")),
        split=_split(record.get("split")),
        group=_optional(record, "group", _id_text),
    )


def _question_id(record: dict[str, Any]) -> str:
    return _id_text(record.get("question_id"), "question_id")


def _id_text(value: Any, column: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(value, column, allow_blank=False)


def _optional(record: dict[str, Any], column: str, read: Callable[[Any, str], str]) -> str | None:
    return None if record.get(column) is None else read(record[column], column)


def _text(value: Any, name: str, allow_blank: bool = True) -> str:
    if not isinstance(value, str):
        raise RowError(f"{name} is {_shown(value)}, not text", f"Give {name} as a string.")
    if len(value) > MAX_CHARS:
        raise RowError(
            f"{name} has {len(value)} characters, above {MAX_CHARS}", "Shorten it or leave the row out."
        )
    if not allow_blank and not value.strip():
        raise RowError(f"{name} is blank", f"Give every row a {name}.")
    if not _encodable(value):
        raise RowError(f"{name} holds half of a surrogate pair", "Write the text as valid Unicode.")
    return value


def _encodable(value: str) -> bool:
    # JSON may carry a lone "\ud800", which is not a character and cannot be stored as UTF-8.
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _strings(record: dict[str, Any], column: str) -> tuple[str, ...]:
    values = record.get(column)
    if not isinstance(values, list):
        raise RowError(f"{column} is {_shown(values)}, not a list", f"Give {column} as a list of strings.")
    return tuple(_text(value, f"{column}[{i}]") for i, value in enumerate(values))


def _logprobs(value: Any, n_answers: int) -> tuple[tuple[float, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        raise RowError(
            f"token_logprobs is {_shown(value)}, not a list of lists", "Give one list of numbers per answer."
        )
    if len(value) != n_answers:
        raise RowError(
            f"token_logprobs has {len(value)} lists for {n_answers} answers", "Give one list per answer."
        )
    return tuple(
        tuple(_logprob(token, f"token_logprobs[{i}][{j}]") for j, token in enumerate(tokens))
        for i, tokens in enumerate(value)
    )


def _logprob(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Rounding may lift a log-probability of 0 a little; an integer of 400 digits is not finite either.
    if not number or not abs(value) < 1e30 or not math.isfinite(value) or value > 1e-3:
        raise RowError(
            f"{name} is {_shown(value)}, not a finite number <= 0",
            "Give natural-log probabilities of the sampled tokens.",
        )
    return min(float(value), 0.0)


def _label(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return int(value)
    raise RowError(
        f"label is {_shown(value)}, outside 0, 1, true, false, null", "Use 1 for right, 0 for wrong."
    )


def _split(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value in SPLITS):
        return value
    raise RowError(
        f"split is {_shown(value)}, outside {', '.join(SPLITS)}", "Name one of them or leave it out."
    )


def _shown(value: Any) -> str:
    """The value for a message, cut: it may be long, and it is not ours."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
