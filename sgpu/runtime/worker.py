"""The Ray Data actor of every stage: builds the stage's worker once and never loses a row."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import EngineDiedError, UnavailableError, UsageError
from sgpu.runtime.ledger import MAX_LONE_DEATHS

WAITING = "waiting"  # status of a row that the next run tries again; it stands in no table
DIED = f"ended its worker process {MAX_LONE_DEATHS} times when it was alone in it"


class Worker(Protocol):
    """A stage's work: a pure function on a pyarrow table, with whatever it loaded held in ``self``."""

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One output row for every input row, in the stage's schema."""
        ...

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        """What to add up for progress and summary, for instance tokens."""
        ...


class StageActor:
    """Runs a worker on batches; an exception or a death of the process costs one row, not a block.

    Rows that wait for the next run are left out of what comes back, unless it only prepares rows for another
    actor (``prepares``), which then leaves them out.
    """

    def __init__(
        self, worker: str, arguments: dict[str, Any], schema: pa.Schema, ledger: Any, prepares: bool = False
    ) -> None:
        module, _, name = worker.partition(":")
        self._worker: Worker = getattr(importlib.import_module(module), name)(**arguments)
        self._schema = schema
        self._ledger = ledger
        self._turns = Turns()
        self._prepares = prepares

    def __call__(self, batch: pa.Table) -> pa.Table:
        import ray

        ids = batch["question_id"].to_pylist()
        if not ids:
            return self._schema.empty_table()
        output = None
        if (advice := ray.get(self._ledger.begin.remote(ids))) == "stop":
            return self._schema.empty_table()
        if advice == "together":
            with self._turns.together(), suppress(Exception):  # which row it was is found out below
                output = self._work(batch)
        if output is None:
            # By itself, or the row of another block would be blamed for what this one does to the engine.
            with self._turns.alone():
                output = self._one_by_one(batch, ids)
        failed = sum(status != "ok" for status in output["status"].to_pylist())
        if not self._prepares:
            output = self._without_waiting(output)
        ray.get(self._ledger.end.remote(ids, dict(self._worker.counts(output)), failed))
        return output

    def _without_waiting(self, output: pa.Table) -> pa.Table:
        import ray

        waits = pc.equal(output["status"], WAITING)
        if not pc.any(waits).as_py():
            return output
        rows = output.filter(waits).select(["question_id", "error"]).to_pylist()
        ray.get([self._ledger.postpone.remote(row["question_id"], row["error"]) for row in rows])
        return output.filter(pc.invert(waits))

    def _work(self, batch: pa.Table) -> pa.Table:
        try:
            return self._worker(batch).cast(self._schema)
        except EngineDiedError:
            # The engine's own process is gone: only a new actor brings a new one. The ledger remembers.
            os._exit(1)

    def _one_by_one(self, batch: pa.Table, ids: list[str]) -> pa.Table:
        import ray

        parts = []
        for position, row_id in enumerate(ids):
            row = batch.slice(position, 1)
            advice = ray.get(self._ledger.begin_alone.remote(row_id))
            if advice == "stop":
                break
            if advice == "quarantine":
                parts.append(failed_row(self._schema, row_id, DIED, WAITING))
                continue
            try:
                parts.append(self._work(row))
            except Exception as error:
                status = WAITING if is_outside(error) else "failed"
                parts.append(failed_row(self._schema, row_id, f"{type(error).__name__}: {error}", status))
                if status == WAITING:
                    continue
            ray.get(self._ledger.end_alone.remote(row_id))
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
    known = {"question_id": [row_id], "status": [status], "error": [reason[:2000]]}
    return pa.table(
        {field.name: pa.array(known.get(field.name, [None]), field.type) for field in schema}, schema=schema
    )
