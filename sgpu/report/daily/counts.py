"""Where the rows of a day went, and what of them stands in quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sgpu.logs.accounting import Accounting
from sgpu.report.look import numbers
from sgpu.visible import visible

FIRST = 5  # quarantined rows that are listed of a reason

CLASSES: tuple[tuple[str, str, str], ...] = (
    ("scored_rows", "Scored now", "new in the table by this run"),
    ("already", "Scored before", "in the table from an earlier run, with the same content"),
    ("quarantined", "Quarantined", "could not be scored; in the quarantine table with the reason"),
    ("duplicates", "Duplicates", "the same request with the same answers once more"),
    ("other_day", "Other days", "of another day by their timestamp"),
    ("no_answer", "No answer by design", "lines that never hold one, such as spans of another kind"),
    ("prompts", "Questions of batches", "input lines, joined with their answers"),
)


@dataclass(frozen=True)
class CountRow:
    """Rows of one class, and their share of all."""

    title: str
    rows: int
    share: float | None
    remark: str


@dataclass(frozen=True)
class QuarantineRow:
    """Rows of one reason; ``first`` are (file and line, detail) of some of them."""

    reason: str
    rows: int
    first: Sequence[tuple[str, str]]


def count_rows(accounting: Accounting) -> list[CountRow]:
    """The classes in a fixed order; those that are rare stand there only if they have rows."""
    total = accounting.rows_in
    rows = []
    for name, title, remark in CLASSES:
        count = getattr(accounting, name)
        if count or name in ("scored_rows", "already", "quarantined", "duplicates"):
            if name == "no_answer" and accounting.no_answer_by_kind:
                remark = f"lines that hold none: {by_kind(accounting)}"
            rows.append(CountRow(title, count, count / total if total else None, remark))
    return rows


def by_kind(accounting: Accounting) -> str:
    """The lines without an answer, most first."""
    kinds = sorted(accounting.no_answer_by_kind.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{numbers.count(count)} {kind.replace('_', ' ')}" for kind, count in kinds)


def accounted(accounting: Accounting) -> int:
    """The sum of all classes; it is `rows_in` unless rows were lost."""
    return sum(getattr(accounting, name) for name, _, _ in CLASSES)


def quarantine_rows(accounting: Accounting, listed: Mapping[str, Any]) -> list[QuarantineRow]:
    """By reason, most rows first. ``listed``: reason -> [{file, line, detail}], no text of any answer."""
    reasons = {**dict.fromkeys(accounting.file_faults, 0), **accounting.by_reason}
    order = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    first = {reason: [_place(row) for row in listed.get(reason, [])[:FIRST]] for reason in order}
    return [QuarantineRow(reason.replace("_", " "), reasons[reason], first[reason]) for reason in order]


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    line = row.get("line")
    file = visible(row.get("file") or "no file")
    return (file if line is None else f"{file}, line {line}"), visible(row.get("detail") or "")
