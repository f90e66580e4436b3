"""What a stage is: its input, its worker and what that may rely on, what it asks Ray for, and its outcome."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sgpu.runtime.ledger import MAX_LONE_DEATHS
from sgpu.runtime.worker import StageWorker, content_of, held_in
from sgpu.storage.store import Partition, Published, Store, fingerprint
from sgpu.storage.tables import Table


@dataclass(frozen=True)
class Resources:
    """What the actor pool of one stage asks Ray for; ``actors`` None: as many as the schedule gives it."""

    actors: int | None = 1
    num_cpus: float = 0.5
    num_gpus: float = 0.0
    block_rows: int = 256
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)  # of the actors' processes
    own_process: bool = True  # what may die of a row, or holds much memory; all else may run in the driver's
    in_driver: bool = False  # whatever its size
    calls: int = 1  # blocks that one actor works on at once; its worker must bear calls from several threads


@dataclass(frozen=True)
class Preparation:
    """Work on the input rows by CPU actors of their own, so that the stage's worker never waits for it.

    ``schema`` is what the stage's worker then gets; its ``status`` is not "ok" where a row failed here.
    """

    worker: StageWorker
    schema: pa.Schema
    actors: int  # for each actor of the stage


@dataclass(frozen=True)
class Shared:
    """State that all workers of a stage share, for instance the costs of a server.

    ``kind(*arguments)`` is built once; the worker gets ``client(ask)`` as its ``field``, where
    ``ask(method, ...)`` calls a method of that one object.
    """

    field: str
    kind: type
    arguments: tuple[Any, ...]
    client: Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Stage:
    """One stage over one partition: what comes out hangs on its ``version``, ``source`` and ``worker``."""

    name: str
    version: int  # raised when the code changes what comes out for the same settings
    table: Table
    partition: Partition
    source: Published
    columns: tuple[str, ...]
    worker: StageWorker
    engine: str = ""  # the name of what its actors open: a model's, an encoder's
    resources: Resources = field(default_factory=Resources)
    preparation: Preparation | None = None
    shared: Shared | None = None
    check: Callable[[], None] | None = None  # raises what has to be known before the work begins
    only: frozenset[str] | None = None  # the ids of the rows that it reads; None: all

    @property
    def rows(self) -> int:
        """How many rows it reads."""
        return self.source.rows if self.only is None else len(self.only)

    @property
    def content(self) -> dict[str, Any]:
        source = self.source
        some = {} if self.only is None else {"only": fingerprint({"ids": sorted(self.only)})}
        return {
            "stage": self.name,
            "stage_version": self.version,
            "settings": content_of(self.worker),
            "input": [source.table, source.partition.path, source.fingerprint],
            **some,
        }

    def row_ids(self) -> pa.Array:
        """Return the ids of the rows that it reads."""
        if self.only is not None:
            return pa.array(sorted(self.only), pa.string())
        return self.source.read(["question_id"])["question_id"].cast(pa.string()).combine_chunks()

    @property
    def pool(self) -> str:
        """What is equal for stages that can share actors, whatever rows they read."""
        ask = self.resources
        needs = [ask.num_gpus, dict(ask.environment), ask.calls, ask.own_process, ask.in_driver]
        work = [self.pool_name, type(self.worker).__name__, self.columns, self.preparation is None]
        return fingerprint({"work": work, "holds": held_in(self.worker), "needs": needs})

    @property
    def pool_name(self) -> str:
        """What the pool is called, by people and in plans."""
        return f"{self.name} {self.engine}"

    def published(self, store: Store) -> Published | None:
        """What is published of the partition if it was made from this content."""
        return store.unchanged(self.table.name, self.partition, fingerprint(self.content))


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
    texts = [reason or "no reason given" for reason in reasons]
    if not texts:
        return ""
    kinds = [re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "", reason) for reason in texts]
    kind, times = Counter(kinds).most_common(1)[0]
    example = texts[kinds.index(kind)]
    return example if times == len(texts) == 1 else f"{example} ({times} of {len(texts)} say so)"


def rates(counts: Mapping[str, float], seconds: float) -> list[str]:
    """Counts per second of work, for a person."""
    if not seconds:
        return []
    return [f"{value / seconds:.{1 if name == 'rows' else 0}f} {name}/s" for name, value in counts.items()]


WAITING = "waiting"  # status of a row that the next run tries again; it stands in no table
DIED = f"ended its worker process {MAX_LONE_DEATHS} times when it was alone in it"


def imported(name: str) -> Any:
    """The object of "module:attribute", a name that our own code passes to its actors, and never an input."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def failed_row(schema: pa.Schema, row_id: str, reason: str, status: str = "failed") -> pa.Table:
    """The row of a question that could not be processed: everything null but its id and the reason."""
    row = {"question_id": row_id, "status": status, "error": reason[:2000]}
    return pa.Table.from_pylist([row], schema=schema)
