"""What the score table holds already, as far as it matters for one day: pinned, and read bucket by bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sgpu.scoring.buckets import Bucket, place_of
from sgpu.scoring.tables import DATE, SCORES
from sgpu.storage.delta_log import active_files
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened

IDS = ("request_id", "model", "content_sha256", "members")
WITH_DATE = SCORES.schema.append(pa.field(DATE, pa.string()))
IDS_WITH_DATE = pa.schema([WITH_DATE.field(name) for name in (*IDS, DATE)])


@dataclass(frozen=True)
class Base:
    """The active files of the days around one day, as (date, path in the table).

    A run is valid against one base: what these files hold is not scored again. `name` changes with any of
    them.
    """

    files: tuple[tuple[str, str], ...] = ()

    @cached_property
    def name(self) -> str:
        text = "\n".join(f"{day} {path}" for day, path in self.files)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def on(self, days: Iterable[date]) -> Base:
        """The files of these days alone."""
        wanted = {day.isoformat() for day in days}
        return Base(tuple((day, path) for day, path in self.files if day in wanted))

    @classmethod
    def of(cls, files: Sequence[Sequence[str]]) -> Base:
        """From the JSON of ``files``."""
        return cls(tuple((day, path) for day, path in files))


def base_of(delta: DeltaTable | None, root: Location, window: Sequence[date]) -> Base:
    """The files of these days in the table as ``delta`` has it."""
    if delta is None:
        return Base()
    days = {day.isoformat() for day in window}
    files = [(partition[DATE], file) for partition, file in active_files(root, delta)]
    return Base(
        tuple(sorted((day, file.path.removeprefix(f"{root.path}/")) for day, file in files if day in days))
    )


def committed_rows(root: Location, base: Base, bucket: Bucket, day: date) -> tuple[pa.Table, pa.Table]:
    """The rows of a bucket in the table: all columns of ``day``, and of the other days `IDS` and the date."""
    own, others = [WITH_DATE.empty_table()], [IDS_WITH_DATE.empty_table()]
    for file_day, path in base.files:
        written = Bucket.in_name(path.rpartition("/")[2])
        if written is not None and not written.meets(bucket):
            continue
        is_own = file_day == day.isoformat()
        rows = read_columns(root / path, SCORES.schema, SCORES.schema.names if is_own else IDS)
        if written is None or not bucket.covers(written):
            ids = rows["request_id"].to_pylist()
            rows = rows.filter(pa.array([bucket.holds(place_of(one)) for one in ids], pa.bool_()))
        rows = rows.append_column(DATE, pa.array([file_day] * rows.num_rows, pa.string()))
        (own if is_own else others).append(rows)
    return pa.concat_tables(own), pa.concat_tables(others)


def sets_with(root: Location, base: Base, answers: set[str]) -> pa.Table:
    """The sets in the table (`IDS` and the date) that hold any of these single answers, of all buckets."""
    found, wanted = [IDS_WITH_DATE.empty_table()], pa.array(sorted(answers), pa.string())
    for file_day, path in base.files if answers else ():
        rows = read_columns(root / path, SCORES.schema, IDS)
        members = rows["members"].combine_chunks()
        held = pc.list_parent_indices(members).filter(pc.is_in(pc.list_flatten(members), value_set=wanted))
        rows = rows.take(pc.unique(held))
        found.append(rows.append_column(DATE, pa.array([file_day] * rows.num_rows, pa.string())))
    return pa.concat_tables(found)


def read_columns(file: Location, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """These columns of a file, default all; null where it was written before there was such a column."""
    fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
    with opened(file) as parquet:
        there = [field.name for field in fields if field.name in parquet.schema_arrow.names]
        rows: pa.Table = parquet.read(columns=there)
    arrays = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def digest(own: pa.Table, others: pa.Table) -> str:
    """sha256 of these rows by their ids, contents and runs, in whatever order and files they stand."""
    lines = [
        f"{day} {run} {content} {request_id}"
        for rows, run_of in ((own, True), (others, False))
        for request_id, content, day, run in zip(
            rows["request_id"].to_pylist(),
            rows["content_sha256"].to_pylist(),
            rows[DATE].to_pylist(),
            rows["run_key"].to_pylist() if run_of else [""] * rows.num_rows,
            strict=True,
        )
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()
