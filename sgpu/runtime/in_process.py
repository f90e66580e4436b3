"""The executor of small stages on one machine: this process, with the semantics of a pool of actors.

Ray and one actor are some fifteen CPU seconds before the first row. A stage of a few thousand rows that needs
no engine of its own is done before they are over. Rows that fail, wait or are quarantined, budgets, progress
and resume are as under Ray; a death of the process is not survived, and therefore noted: the same command
then goes on under Ray, where a row that ends its worker costs that row alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import IntegrityError, MissingDependencyError, UsageError
from sgpu.runtime.costs import CallCosts, CostsClient
from sgpu.runtime.dataflow import StageActor
from sgpu.runtime.ledger import Locked
from sgpu.runtime.session import named_cluster
from sgpu.runtime.stage import Stage
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, parquet_bytes, read_rows

# Held in memory as a whole. Above these the start of Ray is a small share of the work.
MAX_ROWS = 4096
MAX_BYTES = 64 * 2**20
NOTE = "in_process"


def is_done_here(stage: Stage, checkpoint: Location, address: str | None) -> bool:
    """Whether this process does the stage's work, rather than actors of Ray.

    It does not for an engine or a GPU, for several actors, on a cluster, for more rows than the bounds, and
    for what Ray began or a process died of.
    """
    ask = stage.resources
    if ask.own_process or ask.num_gpus or ask.actors > 1 or stage.preparation or named_cluster(address):
        return False
    if stage.source.rows > MAX_ROWS or checkpoint.files():
        return False
    return sum(Location.of(file).info().size or 0 for file in stage.source.files) <= MAX_BYTES


@contextmanager
def noted(checkpoint: Location) -> Iterator[None]:
    """Leave a note in ``checkpoint`` if this process dies inside; an exception is no death."""
    note = checkpoint / NOTE
    note.write_bytes(b"")
    try:
        yield
    finally:
        note.delete()


def hand_over(output: Location, checkpoint: Location) -> None:
    """Let Ray's checkpoint say what was finished here, if anything was."""
    if not checkpoint.files(".parquet") and (ids := _finished(output)):  # Ray writes its own before the rows
        file = checkpoint / f"{uuid.uuid4().hex}.parquet"
        file.write_bytes(parquet_bytes(pa.table({"question_id": ids})))
    (checkpoint / NOTE).delete()


def work(stage: Stage, output: Location, ledger: Locked, root: Location) -> None:
    """Do the stage's work on the rows that ``output`` lacks, and write a file of it for each block.

    ``root`` is the run's. Raises what building the worker raises, with the stage's name.
    """
    actor = _built(stage, ledger, root)
    rows = _rows_without(stage, _finished(output))
    size = stage.resources.block_rows
    blocks = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]

    def write(block: pa.Table) -> None:
        if (done := actor(block)).num_rows:
            (output / f"{uuid.uuid4().hex}.parquet").write_bytes(parquet_bytes(done))

    if stage.resources.calls == 1:
        for block in blocks:
            write(block)
        return
    with ThreadPool(stage.resources.calls) as pool:  # of daemons: an interrupt does not wait for a server
        for _ in pool.imap_unordered(write, blocks):
            pass


def _built(stage: Stage, ledger: Locked, root: Location) -> StageActor:
    arguments: dict[str, Any] = dict(stage.arguments)
    if stage.terms is not None:
        arguments["account"] = CostsClient(Locked(CallCosts(root, stage.terms)))
    try:
        return StageActor(stage.worker, arguments, on_disk(stage.table.schema), ledger)
    except (UsageError, MissingDependencyError, IntegrityError) as error:
        raise type(error)(f"stage {stage.name} on {stage.partition}: {error}") from error


def _rows_without(stage: Stage, finished: Sequence[str]) -> pa.Table:
    files = [Location.of(file) for file in stage.source.files]
    rows = pa.concat_tables(for_each(lambda file: read_rows(file, stage.columns), files))
    return rows.filter(pc.invert(pc.is_in(rows["question_id"], pa.array(finished, pa.string()))))


def _finished(output: Location) -> list[str]:
    parts = for_each(lambda file: read_rows(file, ["question_id"]), output.files(".parquet"))
    return [row_id for part in parts for row_id in part["question_id"].to_pylist()]
