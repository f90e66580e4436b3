"""Runs stages, each over one partition, those that share an engine together: resumable inside, exactly once
outside.

fingerprint -> already published? done
pinned read -> rows that are due -> blocks of K rows -> actor pool, or this process -> a Parquet file a block
every input id once in the output -> one Delta transaction

Rows that failed for a reason outside themselves are not finished: the next run asks for them alone. Where
they are few, the stage is published with them as failed rows, under a fingerprint of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sgpu.errors import SgpuError
from sgpu.runtime.dataflow import is_done_here, ledger_actor, noted, work_here, work_on_ray
from sgpu.runtime.explained import to_stage_error
from sgpu.runtime.ledger import (
    Ledger,
    Ledgers,
    Locked,
    WorkDone,
    ask,
    living_nodes,
    sum_progress,
    sum_work,
)
from sgpu.runtime.metered_ledger import MeteredLedger
from sgpu.runtime.progress import Progress
from sgpu.runtime.publication import DuePartition, count_finished, find_due, publish_partition
from sgpu.runtime.session import ray_session
from sgpu.runtime.shelves import Crew, Site, Task, arrange
from sgpu.runtime.stage import Outcome, Stage
from sgpu.runtime.stalls import CHECK_S, STALLED_S, watch
from sgpu.storage.location import Location
from sgpu.storage.store import Store

NO_WORK = WorkDone({}, 0.0, {}, False)
SHOWN_POOLS = 2  # of a shelf, by name


@dataclass(frozen=True)
class PoolRecord:
    """What a pool did: ``stages`` of one kind, with so many ``starts`` of their engine or encoder.

    Seconds are of all its actors together, while they started and while they were not idle, and of the clock.
    """

    stage: str
    engine: str
    stages: int
    rows: int
    actors: int  # at its beginning
    gpus: float  # of an actor
    starts: int
    start_seconds: float
    busy_seconds: float
    jobs: int  # of Ray Data: 1 for the first pool of a shelf, 0 for those beside it and in this process
    seconds: float


def run_stages(
    store: Store,
    stages: Sequence[Stage],
    progress: Progress,
    address: str | None = None,
    tolerated: float = 1.0,
    on_pool: Callable[[PoolRecord], None] = lambda record: None,
    site: Callable[[], Site | None] = lambda: None,
    stalled_s: float = STALLED_S,
) -> Iterator[Outcome]:
    """Bring partitions to the state that their stages' settings describe, and yield what was done to each.

    The stages do not read each other. Those that can share actors are one pool, see `Stage.pool`; pools that
    fit on the GPUs of the ``site`` run side by side. A stage is published as soon as its last row is written,
    and ``on_pool`` is told what each pool did.

    Raises the first error of a stage when the others are published: StageError if a row is lost or doubled,
    the disk fails or a pool hangs for ``stalled_s``; GivenUpError if no row came through, the first ones all
    killed their worker, or `GIVE_UP_AFTER` in a row, or more than the share ``tolerated``, failed for a
    reason outside themselves. What is finished is kept, and the same call goes on from there.
    """
    due: dict[Location, DuePartition] = {}
    for one in find_due(store, stages):
        if one.published is not None:
            yield Outcome(one.stage.name, one.published, reused=True)
        else:
            due[one.output] = one
    tasks, pools = [task for one in due.values() for task in one.tasks], dict[str, list[Task]]()
    for task in tasks:
        if task.rows:
            pools.setdefault(task.stage.pool, []).append(task)
    # As a run may have left them that died before its commit.
    finished = [(task, NO_WORK) for task in tasks if not task.rows]
    done_of: dict[Location, list[WorkDone]] = {}
    failure: SgpuError | None = None
    work = run_pools(list(pools.values()), progress, address, on_pool, site, stalled_s)
    for task, done in chain(finished, work):
        (parts := done_of.setdefault(task.output, [])).append(done)
        if len(parts) < len(due[task.output].tasks):
            continue
        try:
            outcome = publish_partition(store, due[task.output], sum_work(parts), tolerated)
            # Of stages that ran together each is told with its own work, the pool with its time.
            alone = len(pools.get(task.stage.pool, ())) <= 1
            yield outcome if alone else replace(outcome, seconds=outcome.working_seconds)
        except SgpuError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def run_pools(
    pools: Sequence[Sequence[Task]],
    progress: Progress,
    address: str | None,
    on_pool: Callable[[PoolRecord], None] = lambda record: None,
    site: Callable[[], Site | None] = lambda: None,
    stalled_s: float = STALLED_S,
) -> Iterator[tuple[Task, WorkDone]]:
    """Do the tasks of several pools; yield each with what was done when its rows are written."""
    for task in chain.from_iterable(pools):
        if task.stage.check is not None:
            task.stage.check()
        task.output.make_folder()
    here = [tasks for tasks in pools if is_done_here(tasks, address)]
    for crew in (Crew(tuple(tasks), 1, 1) for tasks in here):
        yield from _run_shelf([crew], crew.title, progress, on_pool, None)
    if there := [tasks for tasks in pools if tasks not in here]:
        with ray_session(address):
            for number, shelf in enumerate(shelves := arrange(there, site()), 1):
                place = f"shelf {number} of {len(shelves)}: " if len(shelves) > 1 else ""
                yield from _run_shelf(shelf, place + _title(shelf), progress, on_pool, stalled_s)


def _title(crews: Sequence[Crew]) -> str:
    more = f" and {len(crews) - SHOWN_POOLS} more pools" if len(crews) > SHOWN_POOLS else ""
    return ", ".join(crew.title for crew in crews[:SHOWN_POOLS]) + more


def _run_shelf(
    crews: Sequence[Crew],
    title: str,
    progress: Progress,
    on_pool: Callable[[PoolRecord], None],
    stalled_s: float | None,
) -> Iterator[tuple[Task, WorkDone]]:
    """Run the pools of a shelf side by side; in this process if ``stalled_s`` is None."""
    began, here = time.monotonic(), stalled_s is None
    tasks = [task for crew in crews for task in crew.tasks]
    ledgers = [
        Locked(Ledgers(Ledger, [{} for _ in crew.tasks])) if here else _metered(crew.tasks) for crew in crews
    ]
    pending = {
        (shared, number): task
        for shared, crew in zip(ledgers, crews, strict=True)
        for number, task in enumerate(crew.tasks)
    }
    rows = sum(task.stage.rows for task in tasks)
    with (
        noted([task.output for task in tasks], here),
        progress.stage(title, rows, sum(task.before for task in tasks), {crew.name for crew in crews}) as bar,
        bar.follow(lambda: sum_progress(ask(shared, "progress") for shared in ledgers)),
        _explained(tasks[0].name if len(crews) == 1 else f"stages of {title}", tasks[0].output),
    ):
        if stalled_s is None:
            work = work_here(crews[0].tasks, ledgers[0])
        else:
            work = watch(work_on_ray(crews, ledgers), crews, ledgers, progress.say, stalled_s)
        checked = began
        for _ in work:
            if not here and time.monotonic() - checked > CHECK_S:
                yield from _take_written(pending)
                checked = time.monotonic()
    seconds = round(time.monotonic() - began, 3)
    for number, (shared, crew) in enumerate(zip(ledgers, crews, strict=True)):
        on_pool(_record_pool(crew, ask(shared, "spent"), int(number == 0 and not here), seconds))
    for (shared, number), task in pending.items():
        yield task, ask(shared, "call", number, "work_done")


@contextmanager
def _explained(work: str, output: Location) -> Iterator[None]:
    """Raise what stops ``work`` in here as an error that names it, and says what can be done."""
    try:
        yield
    except SgpuError:
        raise
    except Exception as error:
        reason = to_stage_error(error, output, work)
        named = str(reason).startswith("stage")
        raise (reason if named else type(reason)(f"{work}: {reason}")) from error


def _record_pool(crew: Crew, spent: tuple[int, float, float], jobs: int, seconds: float) -> PoolRecord:
    starts, starting, busy = spent
    return PoolRecord(
        stage=crew.tasks[0].stage.name,
        engine=crew.tasks[0].stage.engine,
        stages=len(crew.tasks),
        rows=sum(task.rows for task in crew.tasks),
        actors=crew.fewest,
        gpus=crew.ask.num_gpus,
        starts=starts,
        start_seconds=round(starting, 3),
        busy_seconds=round(busy, 3),
        jobs=jobs,
        seconds=seconds,
    )


def _take_written(pending: dict[tuple[Any, int], Task]) -> Iterator[tuple[Task, WorkDone]]:
    """Yield the tasks whose last row is written, and take them out of those that are ``pending``."""
    written = {shared: ask(shared, "written") for shared, _ in pending}
    for (shared, number), task in list(pending.items()):
        # Ray may have given a block to two actors; the files tell.
        if (
            written[shared][number] >= task.rows
            and count_finished(task.stage, task.output) == task.stage.rows
        ):
            del pending[shared, number]
            yield task, ask(shared, "call", number, "work_done")


def _metered(tasks: Sequence[Task]) -> Any:
    labels = [{**dict(task.stage.partition.values), "stage": task.stage.name} for task in tasks]
    of_each = [
        {"labels": one, "living_nodes": living_nodes, "is_proven": task.before > 0}
        for one, task in zip(labels, tasks, strict=True)
    ]
    return ledger_actor(Ledgers, MeteredLedger, of_each)
