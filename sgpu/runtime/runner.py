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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import BudgetError, GivenUpError, SgpuError, StageError
from sgpu.provenance import code_version
from sgpu.runtime.dataflow import Task, is_done_here, ledger_actor, noted, work_here, work_on_ray
from sgpu.runtime.explained import to_stage_error
from sgpu.runtime.ledger import (
    GIVE_UP_AFTER,
    Ledger,
    Ledgers,
    Locked,
    WorkDone,
    ask,
    living_nodes,
)
from sgpu.runtime.metered_ledger import MeteredLedger
from sgpu.runtime.progress import Progress
from sgpu.runtime.session import ray_session
from sgpu.runtime.stage import DIED, Outcome, Stage, failed_row, most_frequent
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, read_rows, row_count, write_rows
from sgpu.storage.store import Published, Store, fingerprint
from sgpu.visible import masked

NO_WORK = WorkDone({}, 0.0, {}, False)


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
    """What a pool did: ``stages`` of one kind, with so many ``starts`` of their engine or encoder."""

    stage: str
    stages: int
    rows: int
    starts: int
    jobs: int  # of Ray Data: 1, or 0 in this process
    seconds: float


def run_stages(
    store: Store,
    stages: Sequence[Stage],
    progress: Progress,
    address: str | None = None,
    tolerated: float = 1.0,
    on_pool: Callable[[PoolRecord], None] = lambda record: None,
) -> Iterator[Outcome]:
    """Yield what `run_stage` returns for each of several stages that one pool of actors does.

    Their workers must be able to share actors: see `Stage.pool`. ``on_pool`` is told what the pool did, if
    anything was due. Raises the first error of a stage when the others are published.
    """
    due = [_Due.of(store, stage) for stage in stages]
    for one in due:
        if one.published is not None:
            yield Outcome(one.task.stage.name, one.published, reused=True)
    due = [one for one in due if one.published is None]
    # What a run that died between its last write and the commit has left needs no more work.
    lacking = [one for one in due if one.before < one.task.stage.rows]
    before = sum(one.before for one in lacking)
    works: dict[Location, WorkDone] = {}
    if lacking:
        done, record = run_blocks([one.task for one in lacking], before, progress, address)
        works = dict(zip((one.task.output for one in lacking), done, strict=True))
        on_pool(record)
    failure: SgpuError | None = None
    for one in due:
        try:
            outcome = _publish(store, one, works.get(one.task.output, NO_WORK), tolerated)
            # Of stages that ran together each is told with its own work, the pool with its time.
            yield replace(outcome, seconds=outcome.working_seconds) if len(lacking) > 1 else outcome
        except SgpuError as error:
            failure = failure or error
    if failure is not None:
        raise failure


@dataclass(frozen=True)
class _Due:
    """A stage, the fingerprint of its content, and what there is of it: a publication, or finished rows."""

    task: Task
    key: str
    published: Published | None
    before: int
    since: float

    @classmethod
    def of(cls, store: Store, stage: Stage) -> _Due:
        key = fingerprint(stage.content)
        current = store.unchanged(stage.table.name, stage.partition, key)
        output = store.staging(stage.table.name, stage.partition, key)
        before = 0 if current else _finished_rows(output)
        return cls(Task(stage, output), key, current, before, time.monotonic())


def _publish(store: Store, due: _Due, done: WorkDone, tolerated: float) -> Outcome:
    """Check what came of a stage and publish it."""
    stage, output, key, waiting = due.task.stage, due.task.output, due.key, done.waiting
    _check_waiting(stage, done, tolerated, output)
    staged, work = output, (done.seconds, done.counts)
    if waiting:
        key = fingerprint({"stage": key, "waiting": sorted(waiting)})
        if current := store.unchanged(stage.table.name, stage.partition, key):
            seconds = time.monotonic() - due.since
            return Outcome(stage.name, current, False, due.before, seconds, *work)
        output = _with_failed_rows(store, stage, staged, key, waiting)
    rows, files = _check_complete(stage, output)
    why_failed = _why_failed(stage, rows, (output, staged))
    seconds = time.monotonic() - due.since
    manifest = {
        **masked(stage.content),  # hashed as it is, so that what was finished stays so
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


def run_blocks(
    tasks: Sequence[Task], before: int, progress: Progress, address: str | None
) -> tuple[list[WorkDone], PoolRecord]:
    """Do the tasks of one pool, of whose rows ``before`` are there; return what was done."""
    began = time.monotonic()
    for task in tasks:
        if task.stage.check is not None:
            task.stage.check()
        task.output.make_folder()
    first, rows = tasks[0].stage, sum(task.stage.rows for task in tasks)
    title = f"{first.name} {first.partition}" + (f" and {len(tasks) - 1} more" if len(tasks) > 1 else "")
    in_process = is_done_here(tasks, address)
    with (
        noted([task.output for task in tasks], in_process),
        nullcontext() if in_process else ray_session(address),
    ):
        ledgers = Locked(Ledgers(Ledger, [{} for _ in tasks])) if in_process else _metered(tasks)
        with progress.stage(title, rows, before) as bar, bar.follow(lambda: ask(ledgers, "progress")):
            try:
                work_here(tasks, ledgers) if in_process else work_on_ray(tasks, ledgers)
            except SgpuError:
                raise
            except Exception as error:
                reason = to_stage_error(error, tasks[0].output, tasks[0].name)
                named = str(reason).startswith(tasks[0].name)
                raise (reason if named else type(reason)(f"{tasks[0].name}: {reason}")) from error
        done, starts = ask(ledgers, "work_done")
    seconds = time.monotonic() - began
    jobs = 0 if in_process else 1
    return done, PoolRecord(first.name, len(tasks), rows - before, starts, jobs, round(seconds, 3))


def _metered(tasks: Sequence[Task]) -> Any:
    labels = [{**dict(task.stage.partition.values), "stage": task.stage.name} for task in tasks]
    of_each = [{"labels": one, "living_nodes": living_nodes} for one in labels]
    return ledger_actor(Ledgers, MeteredLedger, of_each)


def _check_waiting(stage: Stage, done: WorkDone, tolerated: float, begun: Location) -> None:
    """Raise GivenUpError where too many rows wait for the next run; those that end their worker are few.

    Where no row came through, also those are tried again that seemed to fail by themselves: what is ``begun``
    is forgotten.
    """
    rows, waiting = stage.rows, done.waiting
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
            f"stage {stage.name} on {stage.partition}: {len(waiting)} of {rows} rows failed for a reason "
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


def _check_complete(stage: Stage, output: Location) -> tuple[pa.Table, dict[Location, int]]:
    """The ids and states written, and the files that hold them with their rows.

    Raises StageError unless every input id is there exactly once.
    """
    files = output.files(".parquet")
    parts = for_each(lambda file: read_rows(file, ["question_id", "status", "error"]), files)
    rows = pa.concat_tables(parts) if parts else stage.table.schema.empty_table()
    ids, due = rows["question_id"].cast(pa.string()).combine_chunks(), stage.row_ids()
    if ids.sort() == due.sort():
        return rows, {file: part.num_rows for file, part in zip(files, parts, strict=True)}
    written, expected = Counter(ids.to_pylist()), Counter(due.to_pylist())  # large: an object for each id
    lost, extra = list((expected - written).keys()), list((written - expected).keys())
    raise StageError(
        f"stage {stage.name} on {stage.partition}: {len(lost)} rows lost (first: {lost[:3]}), "
        f"{len(extra)} rows doubled or unknown (first: {extra[:3]}). Nothing was published. "
        f"Run the same command again; if it happens twice, delete {output} and report it."
    )
