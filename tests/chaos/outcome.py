"""What the tables hold after a disturbed run, beside what they have to hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

DAY = date(2026, 11, 20)
CLASSES = ("scored_rows", "quarantined", "duplicates", "already", "other_day", "no_answer", "prompts")
COUNTED = ("rows_in", *CLASSES, "requests_scored", "by_reason")
# Which run wrote a row, and with which version of the code, may differ where the rest is the same.
OF_THE_RUN = ("run_key", "code_version")


@dataclass(frozen=True)
class Tables:
    """All rows of both tables."""

    scores: pl.DataFrame
    quarantine: pl.DataFrame

    @classmethod
    def of(cls, out: Path | str) -> Tables:
        return cls(*(pl.read_delta(f"{out}/{name}") for name in ("scores", "quarantine")))

    @cached_property
    def ids(self) -> Counter[str]:
        return Counter(self.scores["request_id"].to_list())

    def canonical(self, leave_out: Collection[str] = OF_THE_RUN) -> tuple[bytes, bytes]:
        """Both tables as bytes that no order of rows or files changes; floats to the last bit."""
        return _bytes(self.scores, leave_out), _bytes(self.quarantine, leave_out)


def _bytes(frame: pl.DataFrame, leave_out: Collection[str]) -> bytes:
    names = sorted(set(frame.columns) - set(leave_out))
    return "\n".join(sorted(map(repr, frame.select(names).rows()))).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Wanted:
    """Both tables, and the counts (those of `COUNTED` that are named)."""

    tables: Tables
    counts: Mapping[str, Any]

    @classmethod
    def of(cls, out: Path | str, counts: Mapping[str, Any]) -> Wanted:
        return cls(Tables.of(out), {name: counts[name] for name in COUNTED if name in counts})


@dataclass(frozen=True)
class Outcome:
    """``problems``: all that is wrong, for a person; ``lost`` and ``doubled`` are requests."""

    rows_in: int
    lost: int
    doubled: int
    identical: bool
    problems: tuple[str, ...]


def summary(out: Path | str, day: date = DAY) -> Any:
    return json.loads(Path(out, "days", str(day), "summary.json").read_bytes())


def outcome(out: Path | str, wanted: Wanted, *, counts: Mapping[str, Any] | None = None) -> Outcome:
    """Compare a local table; ``counts`` are those of the last run, where they are not the wanted ones."""
    found = summary(out)["accounting"]
    problems = versions(out) if isinstance(out, Path) else []
    return compared(Tables.of(out), found, wanted, counts, problems)


def compared(
    tables: Tables,
    found: Mapping[str, Any],
    wanted: Wanted,
    counts: Mapping[str, Any] | None = None,
    problems: Collection[str] = (),
) -> Outcome:
    told = list(problems)
    there = sum(found[name] for name in CLASSES)
    if there != found["rows_in"]:
        told.append(f"{found['rows_in']} rows in, {there} accounted for")
    for name, value in (wanted.counts if counts is None else counts).items():
        if found[name] != value:
            told.append(f"{name} is {found[name]}, not {value}")
    lost = wanted.tables.ids.keys() - tables.ids.keys()
    requests = Counter(tables.scores.select("request_id", "model").rows())  # two models may share an id
    doubled = [request for request, n in requests.items() if n > 1]
    strangers = tables.ids.keys() - wanted.tables.ids.keys()
    for what, ids in (("lost", lost), ("doubled", doubled), ("not to be scored", strangers)):
        if ids:
            told.append(f"{len(ids)} requests {what}: {sorted(ids)[:3]}")
    same = tuple(a == b for a, b in zip(tables.canonical(), wanted.tables.canonical(), strict=True))
    told += [f"other {name}" for name, equal in zip(("scores", "quarantine"), same, strict=True) if not equal]
    return Outcome(found["rows_in"], len(lost), len(doubled), all(same), tuple(told))


def versions(out: Path) -> list[str]:
    """What is wrong with any version that a reader could have seen: requests twice, or fewer than before."""
    problems, before = [], 0
    root = str(out / "scores")
    for version in range(DeltaTable(root).version() + 1):
        rows = DeltaTable(root, version=version).to_pyarrow_table(columns=["request_id", "model"])
        if len(rows.group_by(rows.column_names).aggregate([])) != len(rows):
            problems.append(f"version {version} holds requests twice")
        if len(rows) < before:
            problems.append(f"version {version} holds {len(rows)} requests, {before} were there")
        before = len(rows)
    return problems
