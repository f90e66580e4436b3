"""Compares two folders of text files: words and counts are equal, floats lie within a tolerance.

CSV is compared cell by cell, JSON (also in a cell of CSV) value by value, any other file line by line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One value that is not as expected; ``row`` counts from 1, the header not included."""

    file: str
    row: str
    column: str
    expected: str
    actual: str

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.row, self.column) if part)
        return f"{self.file}: {place}: {self.expected} -> {self.actual}"


def differences(expected: Path, actual: Path, tolerance: float) -> list[Difference]:
    """Every difference between the files below two folders, in order of file and row.

    Floats are equal where they differ by at most ``tolerance`` times the larger magnitude, or ``tolerance``
    below 1; what both write as a whole number has to be the same number.
    """
    names = sorted({str(file.relative_to(root)) for root in (expected, actual) for file in _files(root)})
    return [
        Difference(name, *rest)
        for name in names
        for rest in _of_files(expected / name, actual / name, tolerance)
    ]


def _files(root: Path) -> Iterator[Path]:
    return (file for file in root.rglob("*") if file.is_file())


def _of_files(expected: Path, actual: Path, tolerance: float) -> Iterator[tuple[str, str, str, str]]:
    for file, other in ((expected, "a new file"), (actual, "no such file any more")):
        if not file.is_file():
            yield "file", "", *((ABSENT, other) if file is expected else (str(other), ABSENT))
            return
    if expected.suffix == ".csv":
        yield from _of_csv(expected, actual, tolerance)
    elif expected.suffix == ".json":
        left, right = (json.loads(file.read_text("utf-8")) for file in (expected, actual))
        for place, a, b in _of_values(left, right, tolerance):
            yield "", place or "value", a, b
    else:
        lines = (file.read_text("utf-8").splitlines() for file in (expected, actual))
        for number, (a, b) in enumerate(zip_longest(*lines, fillvalue=ABSENT), start=1):
            if a != b:
                yield f"line {number}", "", a, b


def _of_csv(expected: Path, actual: Path, tolerance: float) -> Iterator[tuple[str, str, str, str]]:
    left, right = (_table(file) for file in (expected, actual))
    if left[0] != right[0]:
        yield "header", "", ",".join(left[0]), ",".join(right[0])
    columns = [name for name in left[0] if name in right[0]]
    if len(left[1]) != len(right[1]):
        yield "rows", "", str(len(left[1])), str(len(right[1]))
    for number, (row, other) in enumerate(zip(left[1], right[1], strict=False), start=1):
        for column in columns:
            for place, a, b in _of_cells(row[column], other[column], tolerance):
                yield f"row {number}", f"column {column}{place and f' {place}'}", a, b


def _table(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    with file.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        return list(reader.fieldnames or []), list(reader)


def _of_cells(expected: str, actual: str, tolerance: float) -> Iterator[tuple[str, str, str]]:
    if expected == actual:
        return
    if expected[:1] in "{[" and actual[:1] in "{[":
        try:
            yield from _of_values(json.loads(expected), json.loads(actual), tolerance)
            return
        except ValueError:
            pass
    if not close(_number(expected), _number(actual), tolerance):
        yield "", expected, actual


def _of_values(
    expected: Any, actual: Any, tolerance: float, place: str = ""
) -> Iterator[tuple[str, str, str]]:
    """The leaves of two JSON values that differ, each with its path."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        keys = dict.fromkeys([*expected, *actual])
        pairs = [(f"{place}.{key}", expected.get(key, ABSENT), actual.get(key, ABSENT)) for key in keys]
    elif isinstance(expected, list) and isinstance(actual, list):
        both = zip_longest(expected, actual, fillvalue=ABSENT)
        pairs = [(f"{place}[{i}]", left, right) for i, (left, right) in enumerate(both)]
    else:
        same = type(expected) is type(actual) and expected == actual
        if not same and not close(expected, actual, tolerance):
            yield place.lstrip("."), json.dumps(expected), json.dumps(actual)
        return
    for where, left, right in pairs:
        yield from _of_values(left, right, tolerance, where)


def close(expected: Any, actual: Any, tolerance: float) -> bool:
    """Whether both are numbers of the same value; whole numbers are counts, and counts are equal or not."""
    numbers = [v for v in (expected, actual) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < 2:
        return False
    left, right = numbers
    if left == right or (left != left and right != right):
        return True
    if isinstance(left, int) and isinstance(right, int):
        return False
    return abs(left - right) <= tolerance * max(1.0, min(abs(left), abs(right)))


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
