"""What a stage is: its input, its worker, what it asks Ray for, and what came of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sgpu.runtime.costs import Terms
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import Table


@dataclass(frozen=True)
class Resources:
    """What the actor pool of one stage asks Ray for."""

    actors: int = 1
    num_cpus: float = 0.5
    num_gpus: float = 0.0
    block_rows: int = 256
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)  # of the actors' processes
    own_process: bool = True  # what may die of a row, or holds much memory; all else may run in the driver's
    calls: int = 1  # blocks that one actor works on at once; its worker must bear calls from several threads


@dataclass(frozen=True)
class Preparation:
    """Work on the input rows by CPU actors of their own, so that the stage's worker never waits for it.

    ``schema`` is what the stage's worker then gets; its ``status`` is not "ok" where a row failed here.
    """

    worker: str  # "module:Class"
    arguments: Mapping[str, Any]
    schema: pa.Schema
    actors: int


@dataclass(frozen=True)
class Stage:
    """One stage over one partition. ``settings`` holds all that decides the content of its output."""

    name: str
    version: int  # raised when the code changes what comes out for the same settings
    table: Table
    partition: Partition
    source: Published
    columns: tuple[str, ...]
    worker: str  # "module:Class", built in the actor with `arguments`
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    resources: Resources = field(default_factory=Resources)
    preparation: Preparation | None = None
    terms: Terms | None = None  # of the server that is paid for the stage's calls
    check: Callable[[], None] | None = None  # raises what has to be known before the work begins

    @property
    def content(self) -> dict[str, Any]:
        source = self.source
        return {
            "stage": self.name,
            "stage_version": self.version,
            "settings": dict(self.settings),
            "input": [source.table, source.partition.path, source.fingerprint],
        }


@dataclass(frozen=True)
class Outcome:
    """What a stage did to a published partition; ``counts`` and times are of this run only."""

    stage: str
    published: Published
    reused: bool
    rows_resumed: int = 0
    seconds: float = 0.0
    working_seconds: float = 0.0  # without the start of Ray and of the engines
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def partition(self) -> Partition:
        return self.published.partition

    @property
    def rows(self) -> int:
        return self.published.rows

    @property
    def rows_by_status(self) -> Mapping[str, int]:
        return self.published.manifest.get("rows_by_status", {})

    def line(self) -> str:
        """The one line that a person reads about this stage."""
        parts = [f"{self.stage:<8} {self.partition!s:<46} {self.rows:>6} rows of {self.published.table}"]
        if self.reused:
            return parts[0] + "  unchanged, not run again"
        # Rates are of the work alone, so that the start of Ray and of engines is told apart.
        starts = self.seconds - self.working_seconds if self.working_seconds else 0.0
        parts.append(f"{self.seconds:7.1f} s" + (f", {starts:.1f} s of it starting" if starts >= 1 else ""))
        parts += rates(self.counts, self.working_seconds)
        if self.rows_resumed:
            parts.append(f"{self.rows_resumed} rows were there already")
        waiting = self.published.manifest.get("rows_waiting")
        parts += [f"{n} {status}" for status, n in sorted(self.rows_by_status.items()) if status != "ok"]
        parts += [f"{waiting} of them wait for the next run"] if waiting else []
        return "  ".join(parts)


def most_frequent(reasons: Iterable[str | None]) -> str:
    """The most frequent of several reasons and its share; those that differ in quoted texts are one."""
    given = [reason or "no reason given" for reason in reasons]
    if not given:
        return ""
    kinds = [re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "", reason) for reason in given]
    kind, times = Counter(kinds).most_common(1)[0]
    example = given[kinds.index(kind)]
    return example if times == len(given) == 1 else f"{example} ({times} of {len(given)} say so)"


def rates(counts: Mapping[str, float], seconds: float) -> list[str]:
    """Counts per second of work, for a person."""
    if not seconds:
        return []
    return [f"{value / seconds:.{1 if name == 'rows' else 0}f} {name}/s" for name, value in counts.items()]
