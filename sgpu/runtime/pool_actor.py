"""The actors of a pool: they do the blocks of all its stages, and write what came of each block as a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import SgpuError
from sgpu.hashing import sha256_hex
from sgpu.runtime.gpu_memory import wait_for_memory
from sgpu.runtime.ledger import StageLedger, ask
from sgpu.runtime.stage import Preparation
from sgpu.runtime.stage_actor import StageActor
from sgpu.runtime.worker import StageWorker, held_by
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import parquet_bytes, read_rows

STAGE = "stage"  # the column with the number of a row's stage in its pool


def number_rows(rows: pa.Table, number: int) -> pa.Table:
    """Return the rows with the number of their stage."""
    return rows.append_column(STAGE, pa.array([number] * rows.num_rows, pa.int32()))


class PoolActor:
    """Does the blocks of a pool's stages with a worker for each, and what the workers hold once for all.

    What came of a block is a file of the stage's output, named by the block's rows: result and checkpoint at
    once. Of a block that is given again only the rows that its file lacks are done. An actor with whole
    ``gpus`` of its own waits, bounded, until they are free.
    """

    def __init__(self, specs: Sequence[WorkerSpec], ledgers: Any, gpus: float = 0.0) -> None:
        if gpus >= 1:
            wait_for_memory()
        began = time.monotonic()
        self._held: dict[str, Any] = {}
        self._actors: dict[int, StageActor] = {}
        self._specs, self._ledgers = specs, ledgers
        self._opening, self._counting = threading.Lock(), threading.Lock()
        self._calls, self._counted_until = 0, 0.0
        self._actor_of(0)  # before any call: of two that come at once each would build an engine
        if self._held:
            ask(ledgers, "count_start", time.monotonic() - began)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Do a block of rows, whose ``stage`` says which of the stages each is for. Returns no row."""
        for number in pc.unique(batch[STAGE]).to_pylist():
            block = batch.filter(pc.equal(batch[STAGE], number)).drop_columns([STAGE])
            self.do_block(number, block)
        return batch.slice(0, 0).select(["question_id"])

    def do_block(self, number: int, block: pa.Table) -> None:
        """Do the rows of one stage and write what came of them."""
        with self._busy() as seconds:
            rows = self._do_rows(number, block)
        ask(self._ledgers, "count_block", number, rows, seconds[0])

    def _do_rows(self, number: int, block: pa.Table) -> int:
        ids, actor, work = block["question_id"], self._actor_of(number), self._specs[number]
        file = work.output / f"{sha256_hex(chr(10).join(ids.to_pylist()))[:32]}.parquet"
        try:
            done = read_rows(file).cast(work.schema)
        except FileNotFoundError:
            done = work.schema.empty_table()
        made = actor(block.filter(pc.invert(pc.is_in(ids, done["question_id"]))))
        if made.num_rows:
            file.write_bytes(parquet_bytes(pa.concat_tables([done, made])))
        return made.num_rows

    @contextmanager
    def _busy(self) -> Iterator[list[float]]:
        """Yield a list that then holds seconds of work; those of calls at once are counted once."""
        seconds = [0.0]
        with self._counting:
            self._counted_until = self._counted_until if self._calls else time.monotonic()
            self._calls += 1
        try:
            yield seconds
        finally:
            with self._counting:
                self._calls -= 1
                now = time.monotonic()
                seconds[0], self._counted_until = now - self._counted_until, now

    def close(self) -> None:
        """Close what the workers hold: its memory is wanted by the next pool."""
        for held in self._held.values():
            if close := getattr(held, "close", None):
                close()
        self._actors.clear()
        self._held.clear()

    def __del__(self) -> None:  # of an actor that ends in good order Ray deletes this object
        self.close()

    def _actor_of(self, number: int) -> StageActor:
        with self._opening, held_by(self._held):
            if number not in self._actors:
                ledger, work = StageLedger(self._ledgers, number), self._specs[number]
                try:
                    actor = StageActor(work.worker, work.schema, ledger)
                except SgpuError as error:
                    raise type(error)(f"{work.name}: {error}") from error
                self._actors[number] = actor
            return self._actors[number]


class PreparingActor:
    """Prepares the rows of a pool's stages for its `PoolActor`."""

    def __init__(self, steps: Sequence[Preparation], ledgers: Any) -> None:
        self._actors = [
            StageActor(step.worker, step.schema, StageLedger(ledgers, number), True)
            for number, step in enumerate(steps)
        ]

    def __call__(self, batch: pa.Table) -> pa.Table:
        done = []
        for number in pc.unique(batch[STAGE]).to_pylist():
            rows = self._actors[number](batch.filter(pc.equal(batch[STAGE], number)).drop_columns([STAGE]))
            done.append(number_rows(rows, number))
        return pa.concat_tables(done)


@dataclass(frozen=True)
class WorkerSpec:
    """What a `PoolActor` needs of one stage."""

    name: str
    worker: StageWorker
    schema: pa.Schema
    output: Location
