"""A stage as a Ray Data plan: a checkpointed read, then pools of actors with back-pressure between them.

The actor of every stage builds the stage's worker once and never loses a row. `sgpu.runtime.in_process` does
the same for what is too small to be worth Ray's start.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import EngineDiedError, UnavailableError, UsageError
from sgpu.runtime.costs import CallCosts, CostsClient
from sgpu.runtime.ledger import MAX_LONE_DEATHS, Ledger, ask, living_nodes
from sgpu.runtime.stage import Preparation, Resources, Stage
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, schema_of

NO_PROGRESS_TIMEOUT_S = 1800
# Threads that wait for the next operation soon sleep. Those that spin for long take cores from the threads
# that they wait for, where anything else runs; those that sleep at once are an eighth slower where nothing
# does (`bench/engine_choice.py`). The first name is that of GNU's OpenMP, in turns of its loop.
SLEEPING_THREADS = {"GOMP_SPINCOUNT": "7000", "KMP_BLOCKTIME": "0"}
PREPARATION_CPUS = 0.25  # on one machine the actors of a stage share its cores with those that prepare for it


def dataflow(stage: Stage, checkpoint: Location, ledger: Any, root: Location) -> Any:
    """The dataset of the stage's output rows; whoever writes it starts the work. ``root`` is the run's."""
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
    arguments = dict(stage.arguments)
    if stage.terms is not None:
        arguments["account"] = CostsClient(ledger_actor(CallCosts, root, stage.terms))
    work = (stage.worker, arguments, on_disk(stage.table.schema), ledger)
    return _mapped(dataset, work, stage.resources)


def ledger_actor(kind: type[Ledger] | type[CallCosts], *arguments: Any) -> Any:
    """A ledger or costs on the driver's node: one that dies with a node that is taken away forgets all."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(kind).options(num_cpus=0, scheduling_strategy=here).remote(*arguments)


def write(dataset: Any, output: Location) -> None:
    """Do the work and write its rows as Parquet files of ``output``."""
    # Object storage needs no folders, and the right to make them is not always given.
    dataset.write_parquet(output.path, filesystem=_filesystem(output), try_create_dir=output.is_local)


def _filesystem(place: Location) -> Any:
    """For object storage; None for folders, which Ray opens itself."""
    return None if place.is_local else place.filesystem


def _prepared(dataset: Any, step: Preparation, block_rows: int) -> Any:
    # Its own ledger: rows are counted, and given up, when the stage has done them, not before.
    ledger = ledger_actor(Ledger, MAX_LONE_DEATHS, math.inf, living_nodes)
    ask = Resources(actors=step.actors, num_cpus=PREPARATION_CPUS, block_rows=block_rows)
    return _mapped(dataset, (step.worker, dict(step.arguments), step.schema, ledger, True), ask)


def _mapped(dataset: Any, work: tuple[Any, ...], ask: Resources) -> Any:
    import ray.data

    environment = {**SLEEPING_THREADS, **ask.environment}
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
        runtime_env={"env_vars": {"OMP_NUM_THREADS": str(ask.threads), **_unset(environment)}},
    )


def _unset(variables: Mapping[str, str]) -> dict[str, str]:
    """Without those that the user has set."""
    return {name: value for name, value in variables.items() if name not in os.environ}


WAITING = "waiting"  # status of a row that the next run tries again; it stands in no table
DIED = f"ended its worker process {MAX_LONE_DEATHS} times when it was alone in it"


class StageWorker(Protocol):
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
        self._worker: StageWorker = getattr(importlib.import_module(module), name)(**arguments)
        self._schema = schema
        self._ledger = ledger
        self._turns = Turns()
        self._prepares = prepares
        self._node = _node_of(ledger)

    def __call__(self, batch: pa.Table) -> pa.Table:
        ids = batch["question_id"].to_pylist()
        if not ids:
            return self._schema.empty_table()
        if (advice := ask(self._ledger, "begin", ids, self._node)) == "stop":
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
        output = pa.concat_tables(parts)
        failed = sum(status != "ok" for status in output["status"].to_pylist())
        if not self._prepares:
            output = self._without_waiting(output)
        ask(self._ledger, "end", ids, dict(self._worker.counts(output)), failed)
        return output

    def _without_waiting(self, output: pa.Table) -> pa.Table:
        waits = pc.equal(output["status"], WAITING)
        if not pc.any(waits).as_py():
            return output
        rows = output.filter(waits).select(["question_id", "error"]).to_pylist()
        for row in rows:
            ask(self._ledger, "postpone", row["question_id"], row["error"])
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
        except Exception as error:
            if is_outside(error):
                return [], rows
            if rows.num_rows == 1:
                row_id = rows["question_id"][0].as_py()
                return [failed_row(self._schema, row_id, f"{type(error).__name__}: {error}")], none
        half = rows.num_rows // 2
        (first, alone), (second, also) = self._halved(rows.slice(0, half)), self._halved(rows.slice(half))
        return [*first, *second], pa.concat_tables([alone, also])

    def _one_by_one(self, batch: pa.Table) -> pa.Table:
        parts = [self._schema.empty_table()]
        for position, row_id in enumerate(batch["question_id"].to_pylist()):
            row = batch.slice(position, 1)
            advice = ask(self._ledger, "begin_alone", row_id, self._node)
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
            ask(self._ledger, "end_alone", row_id)
        return pa.concat_tables(parts)


def _node_of(ledger: Any) -> str:
    """The node of this process, if it shares its ledger with others."""
    if not hasattr(ledger.begin, "remote"):
        return ""
    import ray

    return str(ray.get_runtime_context().get_node_id())


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
