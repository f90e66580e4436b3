"""The actor of one stage: it builds the stage's worker once, and never loses a row."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import EngineDiedError, UnavailableError, UsageError
from sgpu.runtime.stage import DIED, WAITING, failed_row
from sgpu.runtime.worker import DivisibleWorker, StageWorker

PIECES_AT_ONCE = 256


class StageActor:
    """Runs a worker on batches; an exception or a death of the process costs one row, not a block.

    Rows that wait for the next run are left out of what comes back, unless it only prepares rows for another
    actor (``prepares``), which then leaves them out.
    """

    def __init__(self, worker: StageWorker, schema: pa.Schema, ledger: Any, prepares: bool = False) -> None:
        self._worker = copy.copy(worker)  # what it opens ends with this actor
        self._worker.open()
        self._ends_stage = worker.ends_stage
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
