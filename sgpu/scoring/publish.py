"""Makes the files of a run visible: one transaction for each table, or nothing.

All commits to the score table carry the same application transaction, so that of two that were prepared on
one version only one succeeds: whoever is late opens the table again and looks at what is there now. A commit
is tried only while the days around its own hold exactly what the run has compared its rows with. Which run a
day was last written by is read from the transactions too; they outlive the clean-up of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from sgpu.hashing import sha256_hex
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.tables import (
    DATE,
    QUARANTINE,
    SCORES,
    Base,
    base_from,
    base_of,
    files_of_days,
    reproducible_parquet_bytes,
)
from sgpu.storage.delta_log import (
    add_actions,
    check_columns,
    check_sizes,
    commit,
    open_or_create,
    open_table,
    waits,
)
from sgpu.storage.location import Location
from sgpu.storage.store import SHORT
from sgpu.storage.tables import Table

WHOLE_TABLE = "scores"


class DayTables:
    """Both tables of ``out``, from the side of one day."""

    def __init__(self, out: Location, day: date) -> None:
        self._out, self.day = out, day.isoformat()
        self._by_day, self._by_quarantine = f"scores/{self.day}", f"quarantine/{self.day}"
        self._filters = [(DATE, "=", self.day)]

    def generation(self) -> int | None:
        """The number of the last commit of the day's scores; None if there is none."""
        delta = open_table(self._out / SCORES.name)
        return None if delta is None else delta.transaction_version(self._by_day)

    def written_by(self, key: str, result: str | None = None) -> int | None:
        """The day's generation if its last commit was that of ``key`` (with this ``result``); else None."""
        delta = open_table(self._out / SCORES.name)
        if delta is None:
            return None
        generation = delta.transaction_version(self._by_day)
        by_key = delta.transaction_version(self._by_key(key, result))
        return generation if by_key is not None and by_key == generation else None

    def quarantine_of(self, generation: int) -> bool:
        """Whether the quarantine has been published for this generation, or for a later one."""
        delta = open_table(self._out / QUARANTINE.name)
        published = None if delta is None else delta.transaction_version(self._by_quarantine)
        return published is not None and published >= generation

    def base(self, window: Sequence[date]) -> Base:
        """Return what the table holds now of these days.

        Raises IntegrityError for a file that is not as it was written, UsageError for other columns.
        """
        root = self._out / SCORES.name
        delta = open_table(root)
        if delta is not None:  # before its files are read
            check_columns(delta, root, _columns(SCORES))
        files = files_of_days(delta, root, window)
        check_sizes(files)
        return base_from(files, root)

    def commit_scores(
        self, plan: DayPlan, base: Base, files: Sequence[StagedFile], window: Sequence[date]
    ) -> int | None:
        """Add the files to the day, or replace the day by them; the generation of the commit.

        None if the days of ``window`` do not hold ``base`` any more: nothing was committed. Raises StageError
        if a file is gone, or commits keep failing.
        """
        root = self._out / SCORES.name
        actions = self._actions(root, files)
        lost = waits(f"commit the scores of {self.day}")
        while True:
            delta = _open(root, SCORES)
            if base_of(delta, root, window) != base:
                return None
            generation = (delta.transaction_version(WHOLE_TABLE) or 0) + 1
            names = (
                WHOLE_TABLE, self._by_day, self._by_key(plan.key), self._by_key(plan.key, base.name),
            )  # fmt: skip
            metadata = {
                "sgpu_key": plan.key,
                "sgpu_day": self.day,
                "sgpu_model": plan.models.champion.label,
                "sgpu_snapshot": plan.snapshot.sha256,
            }
            replaced = self._filters if plan.settings.rescore else ()
            if commit(root, delta, actions, names, generation, metadata, replaced):
                return generation
            next(lost)

    def commit_quarantine(self, plan: DayPlan, generation: int, files: Sequence[StagedFile]) -> None:
        """Make the files the day's quarantine, unless that of a later generation is there already."""
        root = self._out / QUARANTINE.name
        actions = self._actions(root, files)
        wanted = {file.path for file in files}
        lost = waits(f"commit the quarantine of {self.day}")
        while True:
            delta = _open(root, QUARANTINE)
            current = delta.transaction_version(self._by_quarantine)
            if current is not None and current >= generation:
                return
            active = {path for _, path in base_of(delta, root, [plan.day]).files}
            metadata = {"sgpu_key": plan.key, "sgpu_day": self.day}
            names = (self._by_quarantine,)
            if active == wanted:
                done = commit(root, delta, [], names, generation, metadata)
            elif active & wanted:
                # One commit must not both remove and add a file: the day is emptied first.
                commit(root, delta, [], (), generation, metadata, self._filters)
                continue
            else:
                done = commit(root, delta, actions, names, generation, metadata, self._filters)
            if done:
                return
            next(lost)

    def _actions(self, root: Location, files: Sequence[StagedFile]) -> list[AddAction]:
        return add_actions(root, {root / file.path: _statistics(file) for file in files}, {DATE: self.day})

    def _by_key(self, key: str, result: str | None = None) -> str:
        return f"{self._by_day}/{key}" + (f"/{result}" if result else "")


def _open(root: Location, table: Table) -> DeltaTable:
    return open_or_create(root, _columns(table), table.partition_by)


def _columns(table: Table) -> pa.Schema:
    return table.schema.append(pa.field(DATE, pa.string()))


def _statistics(file: StagedFile) -> dict[str, Any]:
    if file.least is None:
        return {"numRecords": file.rows}
    return {
        "numRecords": file.rows,
        "minValues": {"request_id": file.least},
        "maxValues": {"request_id": file.greatest},
        "nullCount": {"request_id": 0},
    }


# Longer ids than these stay out of the statistics, which every reader of the table holds in memory.
LONGEST_STATISTIC = 200


@dataclass(frozen=True)
class StagedFile:
    """``path`` in its table; ``least`` and ``greatest`` request id, None where they are not told."""

    path: str
    size: int
    rows: int
    least: str | None = None
    greatest: str | None = None


def stage(plan: DayPlan, base: Base, number: int, table: Table, rows: pa.Table) -> StagedFile:
    """Write the rows of one file of a day."""
    payload = reproducible_parquet_bytes(rows)
    name = f"part-{number:04d}-{sha256_hex(payload)[:16]}.parquet"
    path = f"{DATE}={plan.day.isoformat()}/{plan.key[:SHORT]}-{base.name}/{name}"
    file = plan.out / table.name / path
    file.parent.make_folder()
    if not file.is_file():
        file.write_bytes(payload)
    ids = [request_id for request_id in rows["request_id"].to_pylist() if request_id is not None]
    named = len(ids) == rows.num_rows and max(map(len, ids)) <= LONGEST_STATISTIC
    return StagedFile(path, len(payload), rows.num_rows, *((min(ids), max(ids)) if named else ()))
