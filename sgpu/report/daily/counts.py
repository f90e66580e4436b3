"""The day in numbers: its sentence, where its rows went, its models and routes, and the days before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.fitted.profile import BINS
from sgpu.logs.accounting import Accounting
from sgpu.report.daily.findings import named
from sgpu.report.look import numbers
from sgpu.visible import visible
from sgpu.watch.group import Group, merged_group
from sgpu.watch.history import PastDay
from sgpu.watch.sketch import Sketch, sorted_keys
from sgpu.watch.verdict import Level, Verdict, level_of_tests


def group_rows(
    today: Sketch, past: Sequence[Sketch], verdict: Verdict
) -> list[tuple[Level, tuple[str, str], Group, float | None, float]]:
    """Of each model and route, most rows first: level, names, numbers, `mean_probability` before, answers."""
    rows = []
    for key in sorted(sorted_keys(today.groups), key=lambda key: -today.groups[key].rows):
        group = today.groups[key]
        own = [test for test in verdict.findings if not test.everything and (test.model, test.route) == key]
        before = mean_probability([sketch.groups[key] for sketch in past if key in sketch.groups])
        answers = sum(n * count for n, count in group.sizes.items()) / group.rows
        rows.append((level_of_tests(own), named(*key), group, before, answers))
    return rows


def mean_probability(groups: Sequence[Group]) -> float | None:
    """Over all rows of these groups."""
    rows = sum(group.rows for group in groups)
    return sum((group.mean_probability or 0.0) * group.rows for group in groups) / rows if rows else None


def same_model(today: Sketch, past: Sequence[Sketch]) -> list[Sketch]:
    """The past days whose probabilities are of today's model."""
    return [sketch for sketch in past if sketch.rows and sketch.scorers <= today.scorers]


def histogram(sketches: Sequence[Sketch]) -> Floats:
    """(BINS,) rows by probability of all of them."""
    counts = np.zeros(BINS)
    for sketch in sketches:
        for group in sketch.groups.values():
            counts += group.histogram
    return counts


def labelled(sketches: Sequence[Sketch]) -> Group:
    """All labelled rows of these days as one group."""
    return merged_group(
        group for sketch in sketches for group in sketch.groups.values() if group.counts["labelled"]
    )


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


def list_row_counts(accounting: Accounting) -> list[tuple[str, int, float | None, str]]:
    """List title, rows, share and remark of each class in a fixed order; the rare ones only with rows."""
    total = accounting.rows_in
    rows = []
    for name, title, remark in CLASSES:
        count = getattr(accounting, name)
        if count or name in ("scored_rows", "already", "quarantined", "duplicates"):
            if name == "no_answer" and accounting.no_answer_by_kind:
                remark = f"lines that hold none: {by_kind(accounting)}"
            rows.append((title, count, count / total if total else None, remark))
    return rows


def by_kind(accounting: Accounting) -> str:
    """The lines without an answer, most first."""
    kinds = sorted(accounting.no_answer_by_kind.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{numbers.count(count)} {kind.replace('_', ' ')}" for kind, count in kinds)


def accounted(accounting: Accounting) -> int:
    """The sum of all classes; it is `rows_in` unless rows were lost."""
    return sum(getattr(accounting, name) for name, _, _ in CLASSES)


def quarantine_rows(
    accounting: Accounting, listed: Mapping[str, Any]
) -> list[tuple[str, int, list[tuple[str, str]]]]:
    """By reason, most rows first: the reason, its rows, and (file and line, detail) of some of them.

    ``listed``: reason -> [{file, line, detail}], no text of any answer.
    """
    reasons = {**dict.fromkeys(accounting.file_faults, 0), **accounting.by_reason}
    order = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    return [
        (reason, reasons[reason], [_file(row) for row in listed.get(reason, [])[:FIRST]]) for reason in order
    ]


def _file(row: Mapping[str, Any]) -> tuple[str, str]:
    line = row.get("line")
    file = visible(row.get("file") or "no file")
    return (file if line is None else f"{file}, line {line}"), visible(row.get("detail") or "")


def describe_day(today: PastDay) -> str:
    """Return a sentence on rows, scores and quarantine of the day."""
    accounting = today.accounting
    if not accounting.rows_in:
        return "No row was logged on this day."
    new = accounting.requests_scored
    return (
        f"{numbers.count(accounting.rows_in)} rows were logged. {numbers.count(today.sketch.rows)} requests "
        f"have a score, {numbers.count(new) if new else 'none'} of them by this run. "
        f"{numbers.count(accounting.quarantined)} rows are in quarantine."
    )


def before(past: Sequence[Sketch]) -> tuple[float | None, float | None]:
    """Mean probability and unsafe share of these days."""
    groups = [group for sketch in past for group in sketch.groups.values()]
    rows = sum(group.rows for group in groups)
    unsafe = sum(group.counts["unsafe"] for group in groups) / rows if rows else None
    return mean_probability(groups), unsafe
