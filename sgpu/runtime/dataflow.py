"""A stage as a Ray Data plan: a checkpointed read, then pools of actors with back-pressure between them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from typing import Any

from sgpu.runtime.bill import Bill, Paying
from sgpu.runtime.ledger import MAX_LONE_DEATHS, Ledger
from sgpu.runtime.stage import Preparation, Resources, Stage
from sgpu.runtime.worker import StageActor
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, schema_of

NO_PROGRESS_TIMEOUT_S = 1800
# Threads that wait for the next operation sleep: those that spin take the cores from the threads that they
# wait for, wherever anything else runs. The second variable is that of Intel's OpenMP.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
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
        arguments["purse"] = Paying(ledger_actor(Bill, root, stage.terms))
    work = (stage.worker, arguments, on_disk(stage.table.schema), ledger)
    return _mapped(dataset, work, stage.resources)


def ledger_actor(kind: type[Ledger] | type[Bill], *arguments: Any) -> Any:
    """A ledger or a bill on the driver's node: one that dies with a node that is taken away forgets all."""
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
    ledger = ledger_actor(Ledger, MAX_LONE_DEATHS, math.inf)
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
