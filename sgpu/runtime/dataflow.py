"""Who does a stage's work: actors under a Ray Data plan, or this process with the semantics of one actor.

The plan is a checkpointed read, then pools of actors with back-pressure between them. Ray and one actor are
some fifteen CPU seconds before the first row, and a stage of a few thousand rows that needs no engine of its
own is done before they are over: here. Rows that fail, wait or are quarantined, budgets, progress and resume
are as under Ray; a death of the process is not survived, and therefore noted: the same command then goes on
under Ray, where a row that ends its worker costs that row alone.
"""

from __future__ import annotations

import logging
import math
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import IntegrityError, MissingDependencyError, UsageError
from sgpu.runtime.ledger import MAX_LONE_DEATHS, Ledger, Locked, ask, living_nodes, on_node
from sgpu.runtime.session import named_cluster
from sgpu.runtime.stage import Preparation, Resources, Stage, StageActor
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, parquet_bytes, read_rows, schema_of

NO_PROGRESS_TIMEOUT_S = 1800
# Threads that wait for the next operation soon sleep. Those that spin for long take cores from the threads
# that they wait for, where anything else runs; those that sleep at once are an eighth slower where nothing
# does (`bench/engine_choice.py`). The first name is that of GNU's OpenMP, in turns of its loop.
SLEEPING_THREADS = {"GOMP_SPINCOUNT": "7000", "KMP_BLOCKTIME": "0"}
PREPARATION_CPUS = 0.25  # on one machine the actors of a stage share its cores with those that prepare for it


def work_on_ray(stage: Stage, output: Location, checkpoint: Location, ledger: Any) -> None:
    """Do the work that ``checkpoint`` lacks, and write its rows as Parquet files of ``output``."""
    _hand_over(output, checkpoint)
    dataset = _dataflow(stage, checkpoint, ledger)
    # Object storage needs no folders, and the right to make them is not always given.
    dataset.write_parquet(output.path, filesystem=_filesystem(output), try_create_dir=output.is_local)


def _dataflow(stage: Stage, checkpoint: Location, ledger: Any) -> Any:
    """Return the dataset of the stage's output rows; writing it starts the work."""
    import ray.data
    from ray.data.checkpoint import CheckpointConfig

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # its log files keep everything; errors are told by us
            handler.setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    # Both are copied when the dataset is created, so they are set first.
    context.checkpoint_config = CheckpointConfig(
        id_column="question_id",
        checkpoint_path=checkpoint.path,
        override_filesystem=_filesystem(checkpoint),
        delete_checkpoint_on_success=False,
    )
    context.enable_progress_bars = False
    context.execution_options.verbose_progress = False
    context.execution_no_progress_timeout_s = NO_PROGRESS_TIMEOUT_S
    context.max_consecutive_actor_init_deaths = 3
    # The source must be a real read: with any other source Ray checkpoints and yet repeats rows.
    files = [Location.of(file) for file in stage.source.files]
    # Ray refuses pickled columns as well, after some tries, and names neither file nor column.
    for_each(schema_of, files)
    dataset = ray.data.read_parquet(
        [file.path for file in files], filesystem=_filesystem(files[0]), partitioning=None
    )
    dataset = dataset.select_columns(list(stage.columns))
    # Small files merge into one block; without this nothing would be checkpointed before the end.
    dataset = dataset.repartition(target_num_rows_per_block=stage.resources.block_rows)
    if stage.preparation is not None:
        dataset = _prepared(dataset, stage.preparation, stage.resources.block_rows)
    return _mapped(dataset, _work(stage, ledger, ledger_actor), stage.resources)


def _work(stage: Stage, ledger: Any, share: Callable[..., Any]) -> tuple[Any, ...]:
    """Return what the actor of a stage is built from; ``share(kind, *arguments)`` makes its shared state."""
    arguments = stage.worker_arguments()
    if shared := stage.shared:
        arguments[shared.argument] = shared.client(partial(ask, share(shared.kind, *shared.arguments)))
    return stage.worker, arguments, on_disk(stage.table.schema), ledger


def ledger_actor(kind: type, *arguments: Any) -> Any:
    """Start an actor on the driver's node: state that died with a node taken away would be forgotten."""
    import ray

    return ray.remote(kind).options(**on_node()).remote(*arguments)


def _filesystem(location: Location) -> Any:
    """For object storage; None for folders, which Ray opens itself."""
    return None if location.is_local else location.filesystem


def _prepared(dataset: Any, step: Preparation, block_rows: int) -> Any:
    # Its own ledger: rows are counted, and given up, when the stage has done them, not before.
    ledger = ledger_actor(Ledger, MAX_LONE_DEATHS, math.inf, living_nodes)
    ask = Resources(actors=step.actors, num_cpus=PREPARATION_CPUS, block_rows=block_rows)
    return _mapped(dataset, (step.worker, dict(step.arguments), step.schema, ledger, True), ask)


def _mapped(dataset: Any, work: tuple[Any, ...], ask: Resources) -> Any:
    import ray.data

    # What the user has set stays.
    environment = {**SLEEPING_THREADS, **ask.environment}
    unset = {name: value for name, value in environment.items() if name not in os.environ}
    return dataset.map_batches(
        StageActor,
        fn_constructor_args=work,
        batch_format="pyarrow",
        batch_size=ask.block_rows,
        compute=ray.data.ActorPoolStrategy(
            size=ask.actors,
            max_concurrent_calls_per_actor=ask.calls,
            enable_true_multi_threading=ask.calls > 1,
        ),
        num_cpus=ask.num_cpus,
        num_gpus=ask.num_gpus or None,
        udf_modifying_row_count=True,  # rows that wait for the next run are left out
        # Ray would otherwise set one thread for an actor that asks for less than one logical CPU.
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(ask.threads), **unset}},
    )


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
    if ask.in_driver:
        return True
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


def _hand_over(output: Location, checkpoint: Location) -> None:
    """Let Ray's checkpoint say what was finished here, if anything was."""
    if not checkpoint.files(".parquet") and (ids := _finished(output)):  # Ray writes its own before the rows
        _write_file(checkpoint, pa.table({"question_id": ids}))
    (checkpoint / NOTE).delete()


def work_here(stage: Stage, output: Location, ledger: Locked) -> None:
    """Do the stage's work on the rows that ``output`` lacks, and write a file of it for each block.

    Raises what building the worker raises, with the stage's name.
    """
    try:
        actor = StageActor(*_work(stage, ledger, lambda kind, *arguments: Locked(kind(*arguments))))
    except (UsageError, MissingDependencyError, IntegrityError) as error:
        raise type(error)(f"stage {stage.name} on {stage.partition}: {error}") from error
    files = [Location.of(file) for file in stage.source.files]
    rows = pa.concat_tables(for_each(lambda file: read_rows(file, stage.columns), files))
    finished = pa.array(_finished(output), pa.string())
    rows = rows.filter(pc.invert(pc.is_in(rows["question_id"], finished)))
    size = stage.resources.block_rows
    blocks = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]

    def work(block: pa.Table) -> None:
        if (done := actor(block)).num_rows:
            _write_file(output, done)

    if stage.resources.calls == 1:
        for block in blocks:
            work(block)
        return
    with ThreadPool(stage.resources.calls) as pool:  # of daemons: an interrupt does not wait for a server
        for _ in pool.imap_unordered(work, blocks):
            pass


def _write_file(folder: Location, rows: pa.Table) -> None:
    (folder / f"{uuid.uuid4().hex}.parquet").write_bytes(parquet_bytes(rows))


def _finished(output: Location) -> list[str]:
    parts = for_each(lambda file: read_rows(file, ["question_id"]), output.files(".parquet"))
    return [row_id for part in parts for row_id in part["question_id"].to_pylist()]
