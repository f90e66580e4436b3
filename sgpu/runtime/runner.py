"""Runs stages, each over one partition, those that share an engine together: resumable inside, exactly once
outside.

fingerprint -> already published? done
pinned read -> rows that are due -> blocks of K rows -> actor pool, or this process -> a Parquet file a block
every input id once in the output -> one Delta transaction

Rows that failed for a reason outside themselves are not finished: the next run asks for them alone. Where
they are few, the stage is published with them as failed rows, under a fingerprint of its own.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import BudgetError, GivenUpError, SgpuError, StageError
from sgpu.provenance import code_version
from sgpu.runtime.dataflow import finished_ids, is_done_here, ledger_actor, noted, work_here, work_on_ray
from sgpu.runtime.explained import to_stage_error
from sgpu.runtime.ledger import (
    GIVE_UP_AFTER,
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
from sgpu.runtime.session import ray_session
from sgpu.runtime.shelves import Crew, Site, Task, arrange
from sgpu.runtime.stage import DIED, Outcome, Stage, failed_row, most_frequent
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, read_rows, row_count, write_rows
from sgpu.storage.store import Partition, Published, Store, fingerprint
from sgpu.visible import masked

NO_WORK = WorkDone({}, 0.0, {}, False)
CHECK_S = 2.0  # between two looks for stages whose last row is written


def run_stage(
    store: Store, stage: Stage, progress: Progress, address: str | None = None, tolerated: float = 1.0
) -> Outcome:
    """Bring the partition to the state that the stage's settings describe; do nothing if it is there.

    Raises StageError if a row is lost or doubled, or the disk fails; what is finished is kept, and the
    same call goes on from there. GivenUpError if no row came through, if `GIVE_UP_AFTER` in a row did not for
    a reason outside themselves, or if this is so for more than the share ``tolerated`` of all rows.
    """
    return next(run_stages(store, [stage], progress, address, tolerated))


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


def ignore_record(record: PoolRecord) -> None:
    """Do nothing with what a pool did."""


def run_stages(
    store: Store,
    stages: Sequence[Stage],
    progress: Progress,
    address: str | None = None,
    tolerated: float = 1.0,
    on_pool: Callable[[PoolRecord], None] = ignore_record,
    site: Callable[[], Site | None] = lambda: None,
) -> Iterator[Outcome]:
    """Yield what `run_stage` returns for each of several stages that do not read each other.

    Those that can share actors are one pool, see `Stage.pool`; pools that fit on the GPUs of the ``site`` run
    side by side. A stage is published as soon as its last row is written. ``on_pool`` is told what each pool
    did, if anything was due. Raises the first error of a stage when the others are published.
    """
    due = find_due(store, stages)
    for one in due:
        if one.published is not None:
            yield Outcome(one.stage.name, one.published, reused=True)
    due = [one for one in due if one.published is None]
    pools: dict[str, list[Task]] = {}
    due_of: dict[int, DuePartition] = {}
    for one in due:
        for task in one.tasks:
            due_of[id(task)] = one
            if task.rows:  # what a run that died before its commit has left may need no more work
                pools.setdefault(task.stage.pool, []).append(task)
    finished = [(task, NO_WORK) for one in due for task in one.tasks if not task.rows]
    done_of: dict[Location, list[WorkDone]] = {}
    failure: SgpuError | None = None
    for task, done in chain(finished, run_pools(list(pools.values()), progress, address, on_pool, site)):
        one = due_of[id(task)]
        parts = done_of.setdefault(one.output, [])
        parts.append(done)
        if len(parts) < len(one.tasks):
            continue
        try:
            outcome = _publish(store, one, sum_work(parts), tolerated)
            # Of stages that ran together each is told with its own work, the pool with its time.
            alone = len(pools.get(task.stage.pool, ())) <= 1
            yield outcome if alone else replace(outcome, seconds=outcome.working_seconds)
        except SgpuError as error:
            failure = failure or error
    if failure is not None:
        raise failure


@dataclass(frozen=True)
class DuePartition:
    """A partition, the stages that write it together, and what there is of it already."""

    tasks: tuple[Task, ...]
    content: Mapping[str, Any]
    key: str  # the fingerprint of the content
    published: Published | None
    since: float

    @property
    def stage(self) -> Stage:
        return self.tasks[0].stage

    @property
    def rows(self) -> int:
        return sum(task.stage.rows for task in self.tasks)

    @property
    def before(self) -> int:
        return sum(task.before for task in self.tasks)

    @property
    def name(self) -> str:
        return self.tasks[0].name

    @property
    def output(self) -> Location:
        return self.tasks[0].output


def find_due(store: Store, stages: Iterable[Stage]) -> list[DuePartition]:
    """Return the partitions that the stages write; stages of one partition have it in common."""
    by_target: dict[tuple[str, Partition], list[Stage]] = {}
    for stage in stages:
        by_target.setdefault((stage.table.name, stage.partition), []).append(stage)
    found = []
    for (table, partition), together in by_target.items():
        first, *others = together
        content = (
            {"stage": first.name, "stages": [one.content for one in together]} if others else first.content
        )
        key = fingerprint(content)
        current, output = store.unchanged(table, partition, key), store.staging(table, partition, key)
        tasks = [Task(one, output, 0 if current else _count_finished(one, output)) for one in together]
        found.append(DuePartition(tuple(tasks), content, key, current, time.monotonic()))
    return found


def _count_finished(stage: Stage, output: Location) -> int:
    """Count the rows of a stage that stand in whole files."""
    if stage.only is None:
        return _finished_rows(output)
    return sum(row_id in stage.only for row_id in finished_ids(output))


def _publish(store: Store, due: DuePartition, done: WorkDone, tolerated: float) -> Outcome:
    """Check what came of a partition and publish it."""
    stage, output, key, waiting = due.stage, due.output, due.key, done.waiting
    _check_waiting(due, done, tolerated)
    staged, work = output, (done.seconds, done.counts)
    if waiting:
        key = fingerprint({"stage": key, "waiting": sorted(waiting)})
        if current := store.unchanged(stage.table.name, stage.partition, key):
            seconds = time.monotonic() - due.since
            return Outcome(stage.name, current, False, due.before, seconds, *work)
        output = _with_failed_rows(store, stage, staged, key, waiting)
    rows, files = _check_complete(due, output)
    why_failed = _why_failed(stage, rows, (output, staged))
    seconds = time.monotonic() - due.since
    manifest = {
        **masked(due.content),  # hashed as it is, so that what was finished stays so
        "code_version": code_version(),
        "rows": rows.num_rows,
        "rows_by_status": {one["values"]: one["counts"] for one in rows["status"].value_counts().to_pylist()},
        "why_failed": why_failed,
        "rows_waiting": len(waiting),
        "seconds": round(seconds, 3),
        "working_seconds": round(done.seconds, 3),
        "counts": done.counts,
        "actors": stage.resources.actors,
        "threads": stage.resources.threads,  # of an actor
    }
    store.publish(stage.table, stage.partition, key, manifest, files)
    published = store.require(stage.table.name, stage.partition)
    return Outcome(stage.name, published, False, due.before, seconds, *work)


def _why_failed(stage: Stage, rows: pa.Table, begun: Sequence[Location]) -> str:
    """Of the rows that failed. Raises GivenUpError if all did, and forgets what is ``begun``."""
    failures = rows.filter(pc.equal(rows["status"], "failed"))["error"].to_pylist()
    why = most_frequent(failures)
    if failures and len(failures) == rows.num_rows:
        _forget(*begun)
        raise GivenUpError(
            f"stage {stage.name} on {stage.partition}: all {rows.num_rows} rows failed: {why}. "
            "The same command tries them again."
        )
    return why


def _forget(*folders: Location) -> None:
    for folder in folders:
        folder.delete()
        if folder.is_local:
            with suppress(OSError):
                os.removedirs(folder.local.parent)  # the folders above it, as far as they are empty


def _finished_rows(folder: Location) -> int:
    """Rows in whole files; a file that was being written when the process died has no footer."""

    def rows(file: Location) -> int:
        try:
            return row_count(file)
        except pa.ArrowInvalid:
            return 0

    return sum(for_each(rows, folder.files(".parquet")))


def run_pools(
    pools: Sequence[Sequence[Task]],
    progress: Progress,
    address: str | None,
    on_pool: Callable[[PoolRecord], None] = ignore_record,
    site: Callable[[], Site | None] = lambda: None,
) -> Iterator[tuple[Task, WorkDone]]:
    """Do the tasks of several pools; yield each with what was done when its rows are written."""
    for task in chain.from_iterable(pools):
        if task.stage.check is not None:
            task.stage.check()
        task.output.make_folder()
    here = [tasks for tasks in pools if is_done_here(tasks, address)]
    for crew in chain.from_iterable(arrange(here, None)):
        yield from _run_shelf([crew], progress, on_pool, here=True)
    if there := [tasks for tasks in pools if tasks not in here]:
        with ray_session(address):
            for shelf in arrange(there, site()):
                yield from _run_shelf(shelf, progress, on_pool, here=False)


def _run_shelf(
    crews: Sequence[Crew], progress: Progress, on_pool: Callable[[PoolRecord], None], here: bool
) -> Iterator[tuple[Task, WorkDone]]:
    began, tasks = time.monotonic(), [task for crew in crews for task in crew.tasks]
    ledgers = [
        Locked(Ledgers(Ledger, [{} for _ in crew.tasks])) if here else _metered(crew.tasks) for crew in crews
    ]
    pending = {
        (shared, number): task
        for shared, crew in zip(ledgers, crews, strict=True)
        for number, task in enumerate(crew.tasks)
    }
    title, rows = ", ".join(crew.title for crew in crews), sum(task.stage.rows for task in tasks)
    with (
        noted([task.output for task in tasks], here),
        progress.stage(title, rows, sum(task.before for task in tasks), {crew.name for crew in crews}) as bar,
        bar.follow(lambda: sum_progress(ask(shared, "progress") for shared in ledgers)),
    ):
        try:
            work = work_here(crews[0].tasks, ledgers[0]) if here else work_on_ray(crews, ledgers)
            checked = began
            for _ in work:
                if not here and time.monotonic() - checked > CHECK_S:
                    yield from _take_written(pending)
                    checked = time.monotonic()
        except SgpuError:
            raise
        except Exception as error:
            name = tasks[0].name if len(crews) == 1 else f"stages {title}"
            reason = to_stage_error(error, tasks[0].output, name)
            named = str(reason).startswith("stage")
            raise (reason if named else type(reason)(f"{name}: {reason}")) from error
    seconds = round(time.monotonic() - began, 3)
    for number, (shared, crew) in enumerate(zip(ledgers, crews, strict=True)):
        starts, starting, busy = ask(shared, "spent")
        stage, due = crew.tasks[0].stage, sum(task.rows for task in crew.tasks)
        asked = crew.fewest, crew.ask.num_gpus
        spent = starts, round(starting, 3), round(busy, 3), int(number == 0 and not here), seconds
        on_pool(PoolRecord(stage.name, stage.engine, len(crew.tasks), due, *asked, *spent))
    for (shared, number), task in pending.items():
        yield task, ask(shared, "call", number, "work_done")


def _take_written(pending: dict[tuple[Any, int], Task]) -> Iterator[tuple[Task, WorkDone]]:
    """Yield the tasks whose last row is written, and take them out of those that are ``pending``."""
    written = {shared: ask(shared, "written") for shared, _ in pending}
    for (shared, number), task in list(pending.items()):
        # Ray may have given a block to two actors; the files tell.
        if (
            written[shared][number] >= task.rows
            and _count_finished(task.stage, task.output) == task.stage.rows
        ):
            del pending[shared, number]
            yield task, ask(shared, "call", number, "work_done")


def _metered(tasks: Sequence[Task]) -> Any:
    labels = [{**dict(task.stage.partition.values), "stage": task.stage.name} for task in tasks]
    of_each = [{"labels": one, "living_nodes": living_nodes} for one in labels]
    return ledger_actor(Ledgers, MeteredLedger, of_each)


def _check_waiting(due: DuePartition, done: WorkDone, tolerated: float) -> None:
    """Raise GivenUpError where too many rows wait for the next run; those that end their worker are few.

    Where no row came through, also those are tried again that seemed to fail by themselves: what is ``begun``
    is forgotten.
    """
    rows, waiting, begun = due.rows, done.waiting, due.output
    if not waiting:
        return
    blocking = [reason for reason in waiting.values() if reason != DIED]
    unpaid = any(reason.startswith(BudgetError.__name__) for reason in blocking)
    if done.gave_up or unpaid or len(waiting) == rows or len(blocking) > tolerated * rows:
        after = f"It gave up after {GIVE_UP_AFTER} such failures in a row. " if done.gave_up else ""
        parts = for_each(lambda file: read_rows(file, ["status"]), begun.files(".parquet"))
        if not any(status != "failed" for part in parts for status in part["status"].to_pylist()):
            _forget(begun)
        raise GivenUpError(
            f"{due.name}: {len(waiting)} of {rows} rows failed for a reason "
            f"outside themselves: {most_frequent(waiting.values())}. {after}{_finished_rows(begun)} rows "
            "are finished and kept: once the reason is mended, the same command asks for the others alone."
        )


def _with_failed_rows(
    store: Store, stage: Stage, finished: Location, key: str, waiting: Mapping[str, str]
) -> Location:
    """A folder of what is finished and of the waiting rows as failed ones; ``finished`` goes on to grow."""
    folder = store.staging(stage.table.name, stage.partition, key)
    folder.delete()  # what a run left that was killed here
    folder.make_folder()

    def copy(file: Location) -> None:
        (folder / file.name).write_bytes(file.read_bytes())

    for_each(copy, finished.files(".parquet"))
    rows = [failed_row(on_disk(stage.table.schema), row_id, reason) for row_id, reason in waiting.items()]
    write_rows(folder / "waiting.parquet", pa.concat_tables(rows))
    return folder


def _check_complete(due: DuePartition, output: Location) -> tuple[pa.Table, dict[Location, int]]:
    """The ids and states written, and the files that hold them with their rows.

    Raises StageError unless every input id is there exactly once.
    """
    files = output.files(".parquet")
    parts = for_each(lambda file: read_rows(file, ["question_id", "status", "error"]), files)
    rows = pa.concat_tables(parts) if parts else due.stage.table.schema.empty_table()
    ids = rows["question_id"].cast(pa.string()).combine_chunks()
    wanted = pa.concat_arrays([task.stage.row_ids() for task in due.tasks])
    if ids.sort() == wanted.sort():
        return rows, {file: part.num_rows for file, part in zip(files, parts, strict=True)}
    written, expected = Counter(ids.to_pylist()), Counter(wanted.to_pylist())  # large: an object for each id
    lost, extra = list((expected - written).keys()), list((written - expected).keys())
    raise StageError(
        f"{due.name}: {len(lost)} rows lost (first: {lost[:3]}), "
        f"{len(extra)} rows doubled or unknown (first: {extra[:3]}). Nothing was published. "
        f"Run the same command again; if it happens twice, delete {output} and report it."
    )
