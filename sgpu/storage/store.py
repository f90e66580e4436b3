"""Tables on disk: where they are, how they are published, how they are read.

Tables are Delta Lake over Parquet with hive paths. A stage writes its files under
`tables/<table>/<partition>/<fingerprint>/`, invisible to readers, and `publish` makes all of them
visible in one transaction. What is published is read back from the Delta log alone: the fingerprint is
the folder of the active files. No other record exists that could disagree with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable

from sgpu.errors import StageError
from sgpu.hashing import canonical_json, sha256_hex
from sgpu.storage.delta_log import (
    LoggedFile,
    add_actions,
    check_sizes,
    commit,
    logged_files,
    on_disk,
    open_or_create,
    open_table,
    table_errors,
    waits,
)
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import for_each, parquet_bytes, parquet_writer, read_rows, row_count
from sgpu.storage.tables import Table

MANIFEST = "_manifest.json"
DROPPED = "dropped.parquet"  # the one file of a partition that has lost columns
# Twelve hex digits in a path: readable, and a clash inside one partition is out of the question.
SHORT = 12
SHARD_BYTES = 256 * 2**20


def _write_manifest(folder: Location, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(dict(manifest), indent=1, sort_keys=True, default=str)
    (folder / MANIFEST).write_bytes(text.encode())


def fingerprint(content: Mapping[str, Any]) -> str:
    """sha256 of canonical JSON: the same settings give the same hash in any key order."""
    return sha256_hex(canonical_json(content, ascii_only=False, default=str))


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
    columns: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, Partition, str]:
        """What was published: which content of which partition."""
        return self.table, self.partition, self.fingerprint

    @property
    def n_rejected(self) -> int:
        """Rows of the source that could not be used; they are not in ``rows``."""
        return int(self.manifest.get("n_rejected", 0))

    @property
    def dropped(self) -> Sequence[str]:
        """Columns whose values were deleted, see `Store.drop_columns`."""
        return self.manifest.get("dropped", ())

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of exactly these files, in question order; by default all columns that the table has."""
        files = [Location.of(file) for file in self.files]
        wanted = self.columns if columns is None else columns
        table = pa.concat_tables(for_each(lambda file: read_rows(file, wanted), files))
        return table.sort_by("question_id") if "question_id" in table.column_names else table


@dataclass(frozen=True)
class _Snapshot:
    """A table as a store last saw it, and what it has read of its partitions (None: nothing published)."""

    delta: DeltaTable
    files: Sequence[LoggedFile]
    published: dict[Partition, Published | None] = field(default_factory=dict)


class Store:
    """The tables of one study, in a folder or in object storage, from the side of one writer.

    Each table is opened at its first use and read anew after each commit of this store; commits of others
    are seen by a new store, and by `publish`, which never overwrites what it has not seen.
    """

    def __init__(self, root: Location | Path | str) -> None:
        self.root = Location.of(root)
        self._snapshots: dict[str, _Snapshot | None] = {}

    def table_folder(self, table: str) -> Location:
        return self.root / "tables" / table

    def staging(self, table: str, partition: Partition, content_hash: str) -> Location:
        """Where the files of one fingerprint are written; readers cannot see them before `publish`."""
        return self.table_folder(table) / partition.path / content_hash[:SHORT]

    def published(self, table: str, partition: Partition) -> Published | None:
        """Return the partition as last committed by this store or before its first look; None without one."""
        if table not in self._snapshots:
            self._take_snapshot(table, open_table(self.table_folder(table)))
        if (snapshot := self._snapshots[table]) is None:
            return None
        if partition not in snapshot.published:
            snapshot.published[partition] = self._read_partition(snapshot, table, partition)
        return snapshot.published[partition]

    def unchanged(self, table: str, partition: Partition, content_hash: str) -> Published | None:
        """Return the partition if what is published was made from ``content_hash``; nothing is due then."""
        current = self.published(table, partition)
        return current if current and current.fingerprint == content_hash[:SHORT] else None

    def require(self, table: str, partition: Partition) -> Published:
        """As `published`; StageError if there is none."""
        current = self.published(table, partition)
        if current is None:
            raise StageError(
                f"table {table} has nothing published for {partition} in {self.root}; "
                "run the stage before this one (or the whole study) first"
            )
        return current

    def publish(
        self,
        table: Table,
        partition: Partition,
        content_hash: str,
        manifest: Mapping[str, Any],
        files: Mapping[Location, int],
    ) -> Literal["committed", "noop"]:
        """Make these staged files of ``content_hash`` the content of the partition, in one transaction.

        ``files`` are what the caller has checked, each with its rows: what came into the folder since is not
        published. Safe to repeat and to race: the transaction token is checked on the handle that commits,
        and a stale handle fails and is opened anew. Raises StageError if there is no file, if one is gone
        or if commits keep failing.
        """
        folder = self.staging(table.name, partition, content_hash)
        if not files:
            raise StageError(f"nothing to publish: {folder} holds no Parquet file")
        _write_manifest(folder, manifest)
        lost = waits(f"commit {table.name} {partition}")
        while True:
            self._open_or_create(table)
            if self.unchanged(table.name, partition, content_hash):
                return "noop"
            if self._replace(table.name, partition, content_hash, files):
                return "committed"
            next(lost)

    def _replace(
        self, table: str, partition: Partition, content_hash: str, files: Mapping[Location, int]
    ) -> bool:
        """Make files the content of a partition of an open table; False if another writer was faster."""
        root, snapshot = self.table_folder(table), self._snapshots[table]
        assert snapshot is not None
        delta, app = snapshot.delta, f"{table}/{partition.path}"
        counted = {file: {"numRecords": rows} for file, rows in files.items()}
        actions = add_actions(root, counted, dict(partition.values)) if counted else []
        generation = (delta.transaction_version(app) or 0) + 1
        metadata = {"sgpu_fingerprint": content_hash}
        if not commit(root, delta, actions, [app], generation, metadata, partition.filters):
            del self._snapshots[table]  # another writer committed first: look at what stands there now
            return False
        with table_errors(root):
            delta.update_incremental()
        self._take_snapshot(table, delta)
        return True

    def drop_columns(self, table: Table, partition: Partition, columns: Collection[str]) -> int:
        """Delete the values of columns of a partition, which stays published; return the bytes that are free.

        `Published.dropped` then lists them, which their readers have to look for.
        """
        current = self.require(table.name, partition)
        folder = Location.of(current.files[0]).parent
        if current.files == (str(file := folder / DROPPED),):
            return 0
        kept = current.read([name for name in current.columns if name not in columns])
        for name in columns:
            kept = kept.append_column(name, pa.nulls(kept.num_rows, on_disk(table.schema).field(name).type))
        _write_manifest(folder, {**current.manifest, "dropped": sorted(columns)})
        file.write_bytes(parquet_bytes(kept.select(current.columns).cast(on_disk(table.schema))))
        if not self._replace(table.name, partition, current.fingerprint, {file: kept.num_rows}):
            raise StageError(f"{table.name} {partition} was written by another run; run the command again")
        old = [one for one in folder.files(".parquet") if one.name != file.name]
        freed = sum(one.info().size or 0 for one in old)
        for one in old:
            one.delete()
        return freed

    def withdraw(self, table: str, partition: Partition) -> None:
        """Delete what is published of a partition, so that its stage is due again."""
        folder = Location.of(self.require(table, partition).files[0]).parent
        if self._replace(table, partition, "", {}):
            folder.delete()

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
        folder.make_folder()
        file = folder / "part-0.parquet"
        file.write_bytes(parquet_bytes(rows.cast(on_disk(table.schema))))
        full_manifest = {"rows": rows.num_rows, **manifest}
        self.publish(table, partition, content_hash, full_manifest, {file: rows.num_rows})
        return self.require(table.name, partition)

    def write_shards(
        self, table: Table, partition: Partition, batches: Iterable[pa.Table], content_hash: str
    ) -> dict[Location, int]:
        """Stage a table that no process can hold, one row group a batch; `publish` makes it visible.

        Returns the files with their rows. Files of an earlier attempt, which was cut off, are removed first.
        """
        folder = self.staging(table.name, partition, content_hash)
        folder.delete()
        folder.make_folder()
        schema = on_disk(table.schema)
        files: dict[Location, int] = {}
        writer = None
        try:
            for batch in batches:
                with folder.errors():
                    if writer is None:
                        file = folder / f"part-{len(files):05d}.parquet"
                        writer = parquet_writer(file, schema)
                        files[file] = 0
                    writer.write_table(batch.cast(schema), row_group_size=max(1, batch.num_rows))
                    files[file] += batch.num_rows
                    if writer.file_handle.tell() >= SHARD_BYTES:
                        writer.close()
                        writer = None
        finally:
            if writer is not None:
                with folder.errors():
                    writer.close()
        return files

    def _take_snapshot(self, table: str, delta: DeltaTable | None) -> None:
        files = [] if delta is None else logged_files(self.table_folder(table), delta)
        self._snapshots[table] = None if delta is None else _Snapshot(delta, files)

    def _open_or_create(self, table: Table) -> DeltaTable:
        """Return the handle of the last snapshot, or of one taken now; create the table if need be."""
        if snapshot := self._snapshots.get(table.name):
            return snapshot.delta
        columns = [pa.field(name, pa.string()) for name in table.partition_by]
        schema = pa.schema([*on_disk(table.schema), *columns])
        delta = open_or_create(self.table_folder(table.name), schema, table.partition_by)
        self._take_snapshot(table.name, delta)
        return delta

    def _read_partition(self, snapshot: _Snapshot, table: str, partition: Partition) -> Published | None:
        values = set(partition.values)
        files = sorted(
            (file for file in snapshot.files if values <= file.partition.items()),
            key=lambda file: str(file.location),
        )
        if not files:
            return None
        folders = {file.location.parent for file in files}
        if len(folders) != 1:
            raise StageError(f"table {table} {partition} mixes files of {len(folders)} fingerprints")
        check_sizes(files)
        folder = folders.pop()
        manifest = (folder / MANIFEST).read_json() or {}
        rows = sum(for_each(row_count, [file.location for file in files if file.rows is None]))
        rows += sum(file.rows or 0 for file in files)
        delta = snapshot.delta
        folders_by = delta.metadata().partition_columns
        columns = tuple(column.name for column in delta.schema().fields if column.name not in folders_by)
        paths = tuple(str(file.location) for file in files)
        return Published(table, partition, folder.name, delta.version(), paths, rows, manifest, columns)
