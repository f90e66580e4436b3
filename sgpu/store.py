"""Tables on disk: where they are, how they are published, how they are read.

Tables are Delta Lake over Parquet with hive paths. A stage writes its files under
`tables/<table>/<partition>/<fingerprint>/`, invisible to readers, and `publish` makes all of them
visible in one transaction. What is published is read back from the Delta log alone: the fingerprint is
the folder of the active files. No other record exists that could disagree with it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from sgpu.errors import StageError
from sgpu.tables import Table

MANIFEST = "_manifest.json"
# Twelve hex digits in a path: readable, and a clash inside one partition is out of the question.
SHORT = 12
COMMIT_TRIES = 15
SHARD_BYTES = 256 * 2**20


def fingerprint(content: Mapping[str, Any]) -> str:
    """sha256 of canonical JSON: the same settings give the same hash in any key order."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Partition:
    """One hive folder of a table, for instance model=a/dataset=b."""

    values: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, **values: str) -> Partition:
        return cls(tuple(values.items()))

    @property
    def path(self) -> str:
        return "/".join(f"{key}={value}" for key, value in self.values)

    def value(self, key: str) -> str:
        """The value of one partition column."""
        return dict(self.values)[key]

    @property
    def filters(self) -> list[tuple[str, str, str]]:
        return [(key, "=", value) for key, value in self.values]

    def __str__(self) -> str:
        return "/".join(value for _, value in self.values)


@dataclass(frozen=True)
class Published:
    """What readers see of one partition, pinned: later commits do not change these files."""

    table: str
    partition: Partition
    fingerprint: str
    version: int
    files: tuple[str, ...]
    rows: int
    manifest: dict[str, Any] = field(default_factory=dict)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of exactly these files, in question order."""
        wanted = list(columns) if columns is not None else None
        parts = [pq.read_table(file, columns=wanted, partitioning=None) for file in self.files]
        table = pa.concat_tables(parts)
        return table.sort_by("question_id") if "question_id" in table.column_names else table


class Store:
    """The tables of one study folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def table_folder(self, table: str) -> Path:
        return self.root / "tables" / table

    def staging(self, table: str, partition: Partition, content_hash: str) -> Path:
        """Where the files of one fingerprint are written; readers cannot see them before `publish`."""
        return self.table_folder(table) / partition.path / content_hash[:SHORT]

    def checkpoint(self, table: str, partition: Partition, content_hash: str) -> Path:
        """Where Ray Data keeps the ids that a fingerprint has finished; outside every table."""
        return self.root / "checkpoints" / table / partition.path / content_hash[:SHORT]

    def published(self, table: str, partition: Partition) -> Published | None:
        """The partition as committed now, or None."""
        delta = self._open(table)
        return None if delta is None else self._published(delta, table, partition)

    def unchanged(self, table: str, partition: Partition, content_hash: str) -> Published | None:
        """The partition if what is published was made from ``content_hash``, so that nothing is due."""
        current = self.published(table, partition)
        return current if current and current.fingerprint == content_hash[:SHORT] else None

    def require(self, table: str, partition: Partition) -> Published:
        """As `published`; StageError if there is none."""
        found = self.published(table, partition)
        if found is None:
            raise StageError(
                f"table {table} has nothing published for {partition} in {self.root}; "
                "run the stage before this one (or the whole study) first"
            )
        return found

    def publish(
        self, table: Table, partition: Partition, content_hash: str, manifest: Mapping[str, Any]
    ) -> Literal["committed", "noop"]:
        """Make the staged files of ``content_hash`` the content of the partition, in one transaction.

        Safe to repeat and to race: the transaction token is checked on the handle that commits, and a
        stale handle fails and looks again. Raises StageError if no file is staged or commits keep failing.
        """
        folder = self.staging(table.name, partition, content_hash)
        files = sorted(folder.glob("*.parquet"))
        if not files:
            raise StageError(f"nothing to publish: {folder} holds no Parquet file")
        (folder / MANIFEST).write_text(json.dumps(dict(manifest), indent=1, sort_keys=True, default=str))
        root = self.table_folder(table.name)
        app = f"{table.name}/{partition.path}"
        for _ in range(COMMIT_TRIES):
            delta = self._open_or_create(table)
            current = self._published(delta, table.name, partition)
            if current and current.fingerprint == content_hash[:SHORT]:
                return "noop"
            generation = (delta.transaction_version(app) or 0) + 1
            try:
                delta.create_write_transaction(
                    [_add_action(root, file, partition) for file in files],
                    mode="overwrite",
                    schema=delta.schema(),
                    partition_by=list(table.partition_by),
                    partition_filters=partition.filters,
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(app, generation)],
                        custom_metadata={"sgpu_fingerprint": content_hash},
                    ),
                )
            except CommitFailedError:
                time.sleep(0.2)  # somebody else committed first: look at what stands there now
                continue
            return "committed"
        raise StageError(f"could not commit {table.name} {partition} after {COMMIT_TRIES} tries; try again")

    def write(
        self,
        table: Table,
        partition: Partition,
        rows: pa.Table,
        content_hash: str,
        manifest: Mapping[str, Any],
    ) -> Published:
        """Write a table that is small enough for one process, and publish it."""
        folder = self.staging(table.name, partition, content_hash)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{uuid.uuid4().hex}.tmp"  # two writers never share one
        pq.write_table(rows.cast(on_disk(table.schema)), temporary)
        temporary.replace(folder / "part-0.parquet")
        self.publish(table, partition, content_hash, {"rows": rows.num_rows, **manifest})
        return self.require(table.name, partition)

    def write_shards(
        self, table: Table, partition: Partition, batches: Iterable[pa.Table], content_hash: str
    ) -> int:
        """Stage a table that no process can hold, one row group a batch; `publish` makes it visible.

        Returns the number of rows. Files of an earlier attempt, which was cut off, are removed first.
        """
        folder = self.staging(table.name, partition, content_hash)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        schema = on_disk(table.schema)
        rows, writer, shard = 0, None, 0
        try:
            for batch in batches:
                if writer is None:
                    writer = pq.ParquetWriter(folder / f"part-{shard:05d}.parquet", schema)
                writer.write_table(batch.cast(schema), row_group_size=max(1, batch.num_rows))
                rows += batch.num_rows
                if (folder / f"part-{shard:05d}.parquet").stat().st_size >= SHARD_BYTES:
                    writer.close()
                    writer, shard = None, shard + 1
        finally:
            if writer is not None:
                writer.close()
        return rows

    def _open(self, table: str) -> DeltaTable | None:
        try:
            return DeltaTable(str(self.table_folder(table)))
        except TableNotFoundError:
            return None

    def _open_or_create(self, table: Table) -> DeltaTable:
        found = self._open(table.name)
        if found is not None:
            return found
        folder = self.table_folder(table.name)
        folder.mkdir(parents=True, exist_ok=True)
        columns = [pa.field(name, pa.string()) for name in table.partition_by]
        return DeltaTable.create(
            str(folder),
            schema=pa.schema([*on_disk(table.schema), *columns]),
            mode="ignore",
            partition_by=list(table.partition_by),
        )

    def _published(self, delta: DeltaTable, table: str, partition: Partition) -> Published | None:
        files = sorted(delta.file_uris(file_pruning_predicate=partition.filters))
        if not files:
            return None
        folders = {Path(file).parent for file in files}
        if len(folders) != 1:
            raise StageError(f"table {table} {partition} mixes files of {len(folders)} fingerprints")
        folder = folders.pop()
        manifest_file = folder / MANIFEST
        manifest = json.loads(manifest_file.read_text()) if manifest_file.is_file() else {}
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        return Published(table, partition, folder.name, delta.version(), tuple(files), rows, manifest)


def on_disk(schema: pa.Schema) -> pa.Schema:
    """The schema of the files: fixed-size lists become plain lists, and float16 float32.

    Delta has one array type and no float16, and polars refuses a file whose embedded Arrow schema says
    otherwise. Both are kept in memory: casting back on read checks every length and loses nothing.
    """
    return pa.schema(field.with_type(_delta_type(field.type)) for field in schema)


def _delta_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_delta_type(kind.value_type))
    return pa.float32() if pa.types.is_float16(kind) else kind


def _add_action(root: Path, file: Path, partition: Partition) -> AddAction:
    stat = file.stat()
    return AddAction(
        path=file.relative_to(root).as_posix(),
        size=stat.st_size,
        partition_values=dict(partition.values),
        modification_time=int(stat.st_mtime * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": pq.read_metadata(file).num_rows}),
    )
