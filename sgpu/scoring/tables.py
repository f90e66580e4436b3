"""The tables of scoring: their columns, how their files are written, and what the score table holds already.

By day, but for what people say of answers. What is committed is pinned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import pyarrow as pa
from deltalake import DeltaTable

from sgpu.storage.delta_log import LoggedFile, logged_files
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened, parquet_bytes
from sgpu.storage.tables import STRINGS, Table

DATE = "date"
TIMESTAMP = pa.timestamp("us", tz="UTC")

SCORES = Table(
    "scores",
    pa.schema(
        [
            pa.field("request_id", pa.string(), nullable=False),
            pa.field("timestamp", TIMESTAMP),
            pa.field("model", pa.string()),
            pa.field("route", pa.string()),
            pa.field("n_used", pa.int32()),
            pa.field("probability", pa.float64()),
            pa.field("std", pa.float64()),
            pa.field("unsafe", pa.bool_()),
            # n_used eigenvalues, descending; null, as their share, where the set was read by agreement
            pa.field("spectrum", pa.list_(pa.float64())),
            pa.field("top_eigenvalue_share", pa.float64()),
            pa.field("n_distinct", pa.int32()),
            pa.field("status", pa.string()),  # ok, partial (answers were left out), grouped, resampled
            pa.field("head", pa.string()),  # which classifier of the model answered; agreement: on content
            pa.field("label", pa.int8()),  # 1 right, 0 wrong, as the log said; others are in `VERDICTS`
            pa.field("accepted", pa.bool_()),  # by the model's threshold rule; null: it has none
            pa.field("answer", pa.string()),  # the one to show; null: the set was read by its spectrum
            pa.field("p_answer", pa.float64()),  # that it is right; null also where no votes were learnt from
            pa.field("content_sha256", pa.string()),  # of model and answers, or of the question if resampled
            pa.field("members", STRINGS),  # grouped: the requests whose answers make the set
            pa.field("scorer", pa.string()),  # name/version
            pa.field("scorer_sha256", pa.string()),
            pa.field("encoder", pa.string()),
            pa.field("encoder_sha256", pa.string()),
            pa.field("shadow_probability", pa.float64()),
            pa.field("shadow_std", pa.float64()),
            pa.field("shadow_unsafe", pa.bool_()),
            pa.field("shadow_scorer", pa.string()),
            pa.field("run_key", pa.string()),
            pa.field("code_version", pa.string()),
        ]
    ),
    (DATE,),
)

# What models say of an answer set, or why they say nothing.
_JUDGED = (
    "probability", "std", "unsafe", "accepted", "answer", "p_answer", "shadow_probability", "shadow_std",
    "shadow_unsafe", "n_used", "n_distinct", "spectrum", "top_eigenvalue_share", "head", "encoder",
    "encoder_sha256",
)  # fmt: skip
JUDGED = pa.schema([SCORES.schema.field(name) for name in _JUDGED])
REFUSAL = pa.schema([pa.field("refusal", pa.string()), pa.field("why", pa.string())])
SAID = pa.schema([*REFUSAL, *JUDGED])

QUARANTINE = Table(
    "quarantine",
    pa.schema(
        [
            pa.field("file", pa.string()),  # relative to the folder of logs
            pa.field("line", pa.int64()),  # from 1, in Parquet the row; null: the file as a whole
            pa.field("request_id", pa.string()),
            pa.field("timestamp", TIMESTAMP),
            pa.field("model", pa.string()),
            pa.field("route", pa.string()),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("detail", pa.string()),
            pa.field("run_key", pa.string()),
            pa.field("code_version", pa.string()),
        ]
    ),
    (DATE,),
)

# Labels of requests. Nothing is ever replaced: of what is said of a request the last counts, and any row of
# this table counts more than the label of the log.
VERDICTS = Table(
    "verdicts",
    pa.schema(
        [
            pa.field("request_id", pa.string(), nullable=False),
            pa.field("model", pa.string()),  # null: whichever model has answered
            pa.field("label", pa.int8(), nullable=False),  # 1 right, 0 wrong
            pa.field("time", TIMESTAMP, nullable=False),  # when it was taken in
            pa.field("source", pa.string(), nullable=False),  # the file that said it
        ]
    ),
    (),
)


def reproducible_parquet_bytes(rows: pa.Table) -> bytes:
    """Return a Parquet file of these rows; equal rows give equal bytes."""
    return parquet_bytes(rows, compression="zstd", version="2.6", row_group_size=max(1, rows.num_rows))


IDS = ("request_id", "model", "content_sha256", "members")


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

    @classmethod
    def of(cls, files: Sequence[Sequence[str]]) -> Base:
        """From the JSON of ``files``."""
        return cls(tuple((day, path) for day, path in files))


def files_of_days(delta: DeltaTable | None, root: Location, window: Sequence[date]) -> list[LoggedFile]:
    """Return the files of these days in the table as ``delta`` has it."""
    days = {day.isoformat() for day in window}
    files = [] if delta is None else logged_files(root, delta)
    return [file for file in files if file.partition[DATE] in days]


def base_of(delta: DeltaTable | None, root: Location, window: Sequence[date]) -> Base:
    """Return days and paths of `files_of_days`."""
    return base_from(files_of_days(delta, root, window), root)


def base_from(files: Sequence[LoggedFile], root: Location) -> Base:
    """Return days and paths of these files of the table ``root``."""
    named = ((file.partition[DATE], file.location.path.removeprefix(f"{root.path}/")) for file in files)
    return Base(tuple(sorted(named)))


def read_columns(file: Location, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """Read these columns of a file, default all."""
    fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
    with opened(file) as parquet:
        # Within a query, which may hold all of Arrow's threads while it waits for these rows.
        rows: pa.Table = parquet.read(columns=[field.name for field in fields], use_threads=False)
    return rows.select([field.name for field in fields]).cast(pa.schema(fields))
