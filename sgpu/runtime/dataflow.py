"""A pool does the work of stages that share an engine: actors of one Ray Data job, or this process.

The job reads the rows of all its stages that are due, and gives them block by block to actors, with
back-pressure between them. Ray and one actor are some fifteen CPU seconds before the first row, and a stage
of a few thousand rows that needs no engine of its own is done before they are over: here. Rows that fail,
wait or are quarantined, budgets, progress and resume are as under Ray; a death of the process is not
survived, and therefore noted: the same command then goes on under Ray, where a row that ends its worker costs
that row alone.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.runtime.ledger import Ledger, Ledgers, Locked, ask, living_nodes, on_node
from sgpu.runtime.pool_actor import PoolActor, PreparingActor, WorkerSpec, number_rows
from sgpu.runtime.session import named_cluster
from sgpu.runtime.shelves import Crew, Task, resources_of
from sgpu.runtime.stage import Resources
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, read_rows, schema_of

# Threads that wait for the next operation soon sleep. Those that spin for long take cores from the threads
# that they wait for, where anything else runs; those that sleep at once are an eighth slower where nothing
# does (`bench/engine_choice.py`). The first name is that of GNU's OpenMP, in turns of its loop.
SLEEPING_THREADS = {"GOMP_SPINCOUNT": "7000", "KMP_BLOCKTIME": "0"}
PASSED_ON = ("HF_HUB_OFFLINE",)  # to actors on other machines; where their weights lie is their own
PREPARATION_CPUS = 0.25  # on one machine the actors of a stage share its cores with those that prepare for it


def work_on_ray(crews: Sequence[Crew], ledgers: Sequence[Any]) -> Iterator[None]:
    """Do the tasks of a shelf's pools as one Ray Data job; yields when a block of any of them is written."""
    import ray.data

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # its log files keep everything; errors are told by us
            handler.setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()  # copied when the dataset is created
    context.enable_progress_bars = False
    context.execution_options.verbose_progress = False
    context.execution_no_progress_timeout_s = -1  # `sgpu.runtime.stalls` watches each pool
    context.max_consecutive_actor_init_deaths = 3
    first, *others = [_branch(crew, shared) for crew, shared in zip(crews, ledgers, strict=True)]
    for _ in (first.union(*others) if others else first).iter_internal_ref_bundles():
        yield


def _branch(crew: Crew, ledgers: Any) -> Any:
    """Return the dataset of a pool; it has no rows, and whoever takes them does the work."""
    import ray
    import ray.data

    tasks, ask = crew.tasks, crew.ask
    due: dict[str, list[tuple[int, pa.Array | None, pa.Array]]] = {}
    for number, task in enumerate(tasks):
        wanted = _wanted(task)
        for file in task.stage.source.files:
            due.setdefault(_plain(Location.of(file).path), []).append((number, *wanted))
    first = tasks[0].stage
    files = [Location.of(file) for task in tasks for file in task.stage.source.files]
    # Ray refuses pickled columns as well, after some tries, and names neither file nor column.
    for_each(schema_of, files)
    dataset = ray.data.read_parquet(
        list(dict.fromkeys(file.path for file in files)),
        filesystem=None if files[0].is_local else files[0].filesystem,  # Ray opens folders itself
        partitioning=None,
        include_paths=True,
    )
    dataset = dataset.select_columns([*first.columns, "path"])  # Ray reads no others
    dataset = dataset.map_batches(
        _DueRows(ray.put(due)),
        batch_format="pyarrow",
        num_cpus=PREPARATION_CPUS,
        udf_modifying_row_count=True,
    )
    # Small files merge into one block, which is a file of the output.
    dataset = dataset.repartition(target_num_rows_per_block=ask.block_rows)
    if first.preparation is not None:
        steps = [task.stage.preparation for task in tasks]
        # Its own ledger: rows are counted, and given up, when the stage has done them, not before.
        patient = {"give_up_after": math.inf, "living_nodes": living_nodes}
        prepared = ledger_actor(Ledgers, Ledger, [patient for _ in tasks])
        each = max(step.actors for step in steps if step)
        preparing = Resources(num_cpus=PREPARATION_CPUS, block_rows=ask.block_rows)
        sizes = (each * crew.fewest, each * crew.most)
        dataset = _mapped(dataset, PreparingActor, (steps, prepared), preparing, sizes)
    specs = _specs(tasks, ledger_actor)
    return _mapped(dataset, PoolActor, (specs, ledgers, ask.num_gpus), ask, (crew.fewest, crew.most))


class _DueRows:
    """Gives the rows of a file to the stages that read it, without those that are finished."""

    def __init__(self, due: Any) -> None:
        self._due = due

    def __call__(self, batch: pa.Table) -> pa.Table:
        import ray

        due, parts = ray.get(self._due), [number_rows(batch.slice(0, 0).drop_columns(["path"]), 0)]
        for path in pc.unique(batch["path"]).to_pylist():
            rows = batch.filter(pc.equal(batch["path"], path)).drop_columns(["path"])
            for number, only, finished in due[_plain(path)]:
                left = _pick(rows, only, finished)
                parts.append(number_rows(left, number))
        return pa.concat_tables(parts)


def _wanted(task: Task) -> tuple[pa.Array | None, pa.Array]:
    """Return the ids of the rows that a task's stage reads, None for all, and of those that are finished."""
    only = task.stage.row_ids() if task.stage.only is not None else None
    return only, pa.array(finished_ids(task.output), pa.string())


def _pick(rows: pa.Table, only: pa.Array | None, finished: pa.Array) -> pa.Table:
    """Return the rows that are due."""
    rows = rows if only is None else rows.filter(pc.is_in(rows["question_id"], only))
    return rows.filter(pc.invert(pc.is_in(rows["question_id"], finished)))


def _plain(path: str) -> str:
    """Return a path as Ray and we both give it: Ray's may begin with the protocol or lack the first slash."""
    return path.partition("://")[2].lstrip("/") if "://" in path else path.lstrip("/")


def _specs(tasks: Sequence[Task], share: Callable[..., Any]) -> list[WorkerSpec]:
    """Return what each stage's worker is built from; ``share(kind, *arguments)`` makes shared state, once."""
    specs, made = [], dict[Any, Any]()
    for task in tasks:
        worker, schema = copy(task.stage.worker), on_disk(task.stage.table.schema)
        if shared := task.stage.shared:
            key = shared.kind, shared.arguments
            if key not in made:
                made[key] = share(shared.kind, *shared.arguments)
            setattr(worker, shared.field, shared.client(partial(ask, made[key])))
        specs.append(WorkerSpec(task.name, worker, schema, task.output))
    return specs


def ledger_actor(kind: type, *arguments: Any) -> Any:
    """Start an actor on the driver's node: state that died with a node taken away would be forgotten."""
    import ray

    return ray.remote(kind).options(**on_node()).remote(*arguments)


def _mapped(
    dataset: Any, actor: type, arguments: tuple[Any, ...], ask: Resources, actors: tuple[int, int]
) -> Any:
    import ray.data

    # What the user has set stays.
    environment = {**SLEEPING_THREADS, **ask.environment}
    unset = {name: value for name, value in environment.items() if name not in os.environ}
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return dataset.map_batches(
        actor,
        fn_constructor_args=arguments,
        batch_format="pyarrow",
        batch_size=ask.block_rows,
        compute=ray.data.ActorPoolStrategy(
            min_size=actors[0],
            max_size=actors[1],
            max_concurrent_calls_per_actor=ask.calls,
            enable_true_multi_threading=ask.calls > 1,
        ),
        num_cpus=ask.num_cpus,
        num_gpus=ask.num_gpus or None,
        udf_modifying_row_count=True,
        # Ray would otherwise set one thread for an actor that asks for less than one logical CPU.
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(ask.threads), **unset, **passed_on}},
    )


# Held in memory as a whole. Above these the start of Ray is a small share of the work.
MAX_ROWS = 4096
MAX_BYTES = 64 * 2**20
NOTE = "in_process"


def is_done_here(tasks: Sequence[Task], address: str | None) -> bool:
    """Whether this process does the work of a pool, rather than actors of Ray.

    It does not for an engine or a GPU, on a cluster, for more rows than the bounds, and for what a process
    died of.
    """
    first, ask = tasks[0].stage, resources_of(tasks)
    if ask.in_driver:
        return True
    if ask.own_process or ask.num_gpus or first.preparation or named_cluster(address):
        return False
    if sum(task.stage.rows for task in tasks) > MAX_ROWS:
        return False
    if any((task.output / NOTE).is_file() for task in tasks):
        return False
    files = {Location.of(file) for task in tasks for file in task.stage.source.files}
    return sum(file.info().size or 0 for file in files) <= MAX_BYTES


@contextmanager
def noted(outputs: Sequence[Location], here: bool) -> Iterator[None]:
    """Leave notes in ``outputs`` if this process dies inside; an exception is no death.

    Notes of a process that died before are kept until Ray has done the work.
    """
    notes = [output / NOTE for output in outputs]
    for note in notes if here else ():
        note.write_bytes(b"")
    finished = here
    try:
        yield
        finished = True
    finally:
        for note in notes if finished else ():
            note.delete()


def work_here(tasks: Sequence[Task], ledgers: Locked) -> Iterator[None]:
    """Do the tasks of one pool in this process; yields when a block is written."""
    ask, columns = resources_of(tasks), tasks[0].stage.columns
    actor = PoolActor(_specs(tasks, lambda kind, *arguments: Locked(kind(*arguments))), ledgers)
    size, blocks = ask.block_rows, list[tuple[int, pa.Table]]()
    for number, task in enumerate(tasks):
        files = [Location.of(file) for file in task.stage.source.files]
        rows = pa.concat_tables(for_each(lambda file: read_rows(file, columns), files))
        rows = _pick(rows, *_wanted(task))
        blocks += [(number, rows.slice(start, size)) for start in range(0, rows.num_rows, size)]
    if ask.calls == 1:
        for block in blocks:
            actor.do_block(*block)
            yield
        return
    with ThreadPool(ask.calls) as pool:  # of daemons: an interrupt does not wait for a server
        yield from pool.imap_unordered(lambda block: actor.do_block(*block), blocks)


def finished_ids(output: Location) -> list[str]:
    """Return the ids of the rows that stand in whole files."""
    parts = for_each(lambda file: read_rows(file, ["question_id"]), output.files(".parquet"))
    return [row_id for part in parts for row_id in part["question_id"].to_pylist()]
