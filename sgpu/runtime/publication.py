"""What came of a partition: looked at, checked against what was asked, and published in one transaction.

Rows that failed for a reason outside themselves are not finished: the next run asks for them alone. Where
they are few, the partition is published with them as failed rows, under a fingerprint of its own.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from sgpu.errors import BudgetError, GivenUpError, StageError
from sgpu.provenance import code_version
from sgpu.runtime.dataflow import finished_ids
from sgpu.runtime.ledger import WorkDone
from sgpu.runtime.shelves import Task
from sgpu.runtime.stage import DIED, Outcome, Stage, failed_row, most_frequent
from sgpu.storage.delta_log import on_disk
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, opened, read_rows, row_count, write_rows
from sgpu.storage.store import Partition, Published, Store, fingerprint
from sgpu.visible import masked

BATCH_ROWS = 4096  # of ids that are looked at together


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
        tasks = [Task(one, output, 0 if current else count_finished(one, output)) for one in together]
        found.append(DuePartition(tuple(tasks), content, key, current, time.monotonic()))
    return found


def count_finished(stage: Stage, output: Location) -> int:
    """Count the rows of a stage that stand in whole files."""
    if stage.only is None:
        return _finished_rows(output)
    return sum(row_id in stage.only for row_id in finished_ids(output))


def publish_partition(store: Store, due: DuePartition, done: WorkDone, tolerated: float) -> Outcome:
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
    files = check_complete(due, output)
    rows, by_status = sum(file.rows for file in files.values()), Counter[str]()
    for file in files.values():
        by_status.update(file.by_status)
    failures = [error for file in files.values() for error in file.failures]
    if failures and len(failures) == rows:
        _forget(output, staged)
        raise GivenUpError(
            f"{due.name}: all {rows} rows failed: {most_frequent(failures)}. "
            "The same command tries them again."
        )
    seconds = time.monotonic() - due.since
    manifest = {
        **masked(due.content),  # hashed as it is, so that what was finished stays so
        "code_version": code_version(),
        "rows": rows,
        "rows_by_status": dict(by_status),
        "why_failed": most_frequent(failures),
        "rows_waiting": len(waiting),
        "seconds": round(seconds, 3),
        "working_seconds": round(done.seconds, 3),
        "counts": done.counts,
        "actors": stage.resources.actors,
        "threads": stage.resources.threads,  # of an actor
    }
    counted = {file: written.rows for file, written in files.items()}
    store.publish(stage.table, stage.partition, key, manifest, counted)
    published = store.require(stage.table.name, stage.partition)
    return Outcome(stage.name, published, False, due.before, seconds, *work)


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
        after = f"It gave up after {len(waiting)} such failures. " if done.gave_up else ""
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


class WrittenFile(NamedTuple):
    """What a file of a partition holds: rows, the sum of their ids, and the errors of failed ones."""

    rows: int
    id_sum: int
    by_status: Mapping[str, int]
    failures: Sequence[str | None]


def check_complete(due: DuePartition, output: Location) -> dict[Location, WrittenFile]:
    """Return what each file holds. Raises StageError unless every input id is there exactly once.

    Ids are compared by their number and the sum of their hashes, file by file: all together they would take
    gigabytes.
    """
    files = output.files(".parquet")
    written = dict(zip(files, for_each(_look_at, files), strict=True))
    found = sum(file.rows for file in written.values()), sum(file.id_sum for file in written.values())
    if found == (due.rows, sum(_sum_wanted(task.stage) for task in due.tasks)):
        return written
    ids = Counter(finished_ids(output))
    expected = Counter(row_id for task in due.tasks for row_id in task.stage.row_ids().to_pylist())
    lost, extra = list((expected - ids).keys()), list((ids - expected).keys())
    raise StageError(
        f"{due.name}: {len(lost)} rows lost (first: {lost[:3]}), "
        f"{len(extra)} rows doubled or unknown (first: {extra[:3]}). Nothing was published. "
        f"Run the same command again; if it happens twice, delete {output} and report it."
    )


def _look_at(file: Location) -> WrittenFile:
    rows = read_rows(file, ["question_id", "status", "error"])
    statuses = rows["status"].to_pylist()
    errors = zip(statuses, rows["error"].to_pylist(), strict=True)
    failures = [error for status, error in errors if status == "failed"]
    id_sum = sum(map(hash, rows["question_id"].to_pylist()))
    return WrittenFile(rows.num_rows, id_sum, Counter(statuses), failures)


def _sum_wanted(stage: Stage) -> int:
    if stage.only is not None:
        return sum(map(hash, stage.only))
    files = [Location.of(file) for file in stage.source.files]
    return sum(_sum_ids(file) for file in files)


def _sum_ids(file: Location) -> int:
    with opened(file) as parquet:
        batches = parquet.iter_batches(BATCH_ROWS, columns=["question_id"])
        return sum(hash(row_id) for batch in batches for row_id in batch["question_id"].to_pylist())
