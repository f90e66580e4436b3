"""What a stage is: its input, its worker, what it asks Ray for, what came of it, and the actor that works.

The actor of every stage builds the stage's worker once and never loses a row.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import EngineDiedError, UnavailableError, UsageError
from sgpu.runtime.ledger import MAX_LONE_DEATHS
from sgpu.storage.store import Partition, Published, Store, fingerprint
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
    in_driver: bool = False  # whatever its size
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
class Shared:
    """State that all workers of a stage share, for instance the costs of a server.

    ``kind(*arguments)`` is built once; the worker gets ``client(ask)`` as its ``argument``, where
    ``ask(method, ...)`` calls a method of that one object.
    """

    argument: str
    kind: type
    arguments: tuple[Any, ...]
    client: Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Stage:
    """One stage over one partition.

    ``settings`` holds all that decides the content of its output. The worker is built with those settings
    that it has parameters for, and with ``arguments``, which decide nothing: paths, devices, engines.
    """

    name: str
    version: int  # raised when the code changes what comes out for the same settings
    table: Table
    partition: Partition
    source: Published
    columns: tuple[str, ...]
    worker: str  # "module:Class", built in the actor
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any]
    holds: Mapping[str, Any] = field(default_factory=dict)  # what its actors open: an engine, an encoder
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
            "settings": dict(self.settings),
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
        prepared = self.preparation and self.preparation.worker
        work = [self.name, self.worker, self.columns, prepared]
        return fingerprint({"work": work, "holds": dict(self.holds), "needs": needs})

    def worker_arguments(self) -> dict[str, Any]:
        """Return what the worker is built with."""
        known = inspect.signature(imported(self.worker)).parameters
        return {name: value for name, value in self.settings.items() if name in known} | dict(self.arguments)

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
PIECES_AT_ONCE = 256


class StageWorker(Protocol):
    """A stage's work: a pure function on a pyarrow table, with whatever it loaded held in ``self``.

    A worker may have ``ends_stage``: kinds of errors that say nothing of a row, and stop the stage.
    """

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One output row for every input row, in the stage's schema."""
        ...

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        """What to add up for progress and summary, for instance tokens."""
        ...


@runtime_checkable
class DivisibleWorker(StageWorker, Protocol):
    """A worker whose rows consist of pieces; of a row that fails or kills its worker, each is tried alone."""

    def split(self, row: pa.Table) -> pa.Table:
        """Return the pieces of one row, as rows of the same columns with ids of their own."""
        ...

    def gather(self, row_id: str, pieces: pa.Table) -> pa.Table:
        """Return the output row of a row that was split, from those of its pieces, failed ones included."""
        ...


def imported(name: str) -> Any:
    """The object of "module:attribute", a name that our own code passes to its actors, and never an input."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class StageActor:
    """Runs a worker on batches; an exception or a death of the process costs one row, not a block.

    Rows that wait for the next run are left out of what comes back, unless it only prepares rows for another
    actor (``prepares``), which then leaves them out.
    """

    def __init__(
        self, worker: str, arguments: dict[str, Any], schema: pa.Schema, ledger: Any, prepares: bool = False
    ) -> None:
        self._worker: StageWorker = imported(worker)(**arguments)
        self._ends_stage: tuple[type[Exception], ...] = getattr(self._worker, "ends_stage", ())
        self._schema = schema
        self._ledger = ledger
        self._turns = Turns()
        self._prepares = prepares
        self._node = getattr(ledger, "node", "")

    def __call__(self, batch: pa.Table) -> pa.Table:
        if not (output := self._try_rows(batch)).num_rows:
            return output
        if isinstance(self._worker, DivisibleWorker):
            output = self._search_in_pieces(self._worker, batch, output)
        failed = sum(status != "ok" for status in output["status"].to_pylist())
        if not self._prepares:
            output = self._without_waiting(output)
        ids = batch["question_id"].to_pylist()
        self._ledger.end(ids, dict(self._worker.counts(output)), failed)
        return output

    def _try_rows(self, batch: pa.Table) -> pa.Table:
        """Return what came of each row; of none once the stage has given up."""
        ids = batch["question_id"].to_pylist()
        if not ids or (advice := self._ledger.begin(ids, self._node)) == "stop":
            return self._schema.empty_table()
        parts: list[pa.Table] = []
        alone = batch
        if advice == "together":
            with self._turns.together():
                parts, alone = self._halved(batch)
        if alone.num_rows:
            # By itself, or the row of another block would be blamed for what this one does to the engine.
            with self._turns.alone():
                parts.append(self._one_by_one(alone))
        return pa.concat_tables(parts)

    def _search_in_pieces(self, worker: DivisibleWorker, batch: pa.Table, output: pa.Table) -> pa.Table:
        """Return the output with each row that failed, or waits, done again piece by piece."""
        rows = []
        for place, row_id in enumerate(output["question_id"].to_pylist()):
            row = output.slice(place, 1)
            if row["status"][0].as_py() != "ok":
                pieces, done = worker.split(batch.filter(pc.equal(batch["question_id"], row_id))), []
                for start in range(0, pieces.num_rows, PIECES_AT_ONCE):
                    together = pieces.slice(start, PIECES_AT_ONCE)
                    done.append(self._try_rows(together))
                    self._ledger.close(together["question_id"].to_pylist())
                row = worker.gather(row_id, pa.concat_tables([self._schema.empty_table(), *done]))
            rows.append(row.cast(self._schema))
        return pa.concat_tables(rows)

    def _without_waiting(self, output: pa.Table) -> pa.Table:
        waits = pc.equal(output["status"], WAITING)
        if not pc.any(waits).as_py():
            return output
        rows = output.filter(waits).select(["question_id", "error"]).to_pylist()
        for row in rows:
            self._ledger.postpone(row["question_id"], row["error"])
        return output.filter(pc.invert(waits))

    def _work(self, batch: pa.Table) -> pa.Table:
        try:
            return self._worker(batch).cast(self._schema)
        except EngineDiedError:
            # The engine's own process is gone: only a new actor brings a new one. The ledger remembers.
            os._exit(1)

    def _halved(self, rows: pa.Table) -> tuple[list[pa.Table], pa.Table]:
        """What came of the rows, a fault among them found by halving; and rows to be tried one by one.

        These failed for a reason outside themselves, of which halves would say no more.
        """
        none = rows.slice(0, 0)
        try:
            return [self._work(rows)], none
        except self._ends_stage:
            raise
        except Exception as error:
            if is_outside(error):
                return [], rows
            if rows.num_rows == 1:
                row_id = rows["question_id"][0].as_py()
                return [failed_row(self._schema, row_id, f"{type(error).__name__}: {error}")], none
        half = rows.num_rows // 2
        (first, alone), (second, more) = self._halved(rows.slice(0, half)), self._halved(rows.slice(half))
        return [*first, *second], pa.concat_tables([alone, more])

    def _one_by_one(self, batch: pa.Table) -> pa.Table:
        parts = [self._schema.empty_table()]
        for position, row_id in enumerate(batch["question_id"].to_pylist()):
            row = batch.slice(position, 1)
            advice = self._ledger.begin_alone(row_id, self._node)
            if advice == "stop":
                break
            if advice == "quarantine":
                parts.append(failed_row(self._schema, row_id, DIED, WAITING))
                continue
            try:
                parts.append(self._work(row))
            except self._ends_stage:
                raise
            except Exception as error:
                status = WAITING if is_outside(error) else "failed"
                parts.append(failed_row(self._schema, row_id, f"{type(error).__name__}: {error}", status))
                if status == WAITING:
                    self._ledger.close([row_id])
                    continue
            self._ledger.end_alone(row_id)
        return pa.concat_tables(parts)


class Turns:
    """Blocks of several threads at once, or one block with nothing beside it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._alone = False
        self._waiting_alone = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Waits while a block runs alone or wants to."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no other block runs."""
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._together)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


def is_outside(error: BaseException) -> bool:
    """Whether a row failed for a reason that says nothing of the row: its next try may well succeed."""
    kinds = UnavailableError, UsageError, MemoryError, ConnectionError, TimeoutError
    # PyTorch's own, by name: it is imported only where a worker needs it.
    return isinstance(error, kinds) or type(error).__name__ == "OutOfMemoryError"


def failed_row(schema: pa.Schema, row_id: str, reason: str, status: str = "failed") -> pa.Table:
    """The row of a question that could not be processed: everything null but its id and the reason."""
    row = {"question_id": row_id, "status": status, "error": reason[:2000]}
    return pa.Table.from_pylist([row], schema=schema)
