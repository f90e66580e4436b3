"""Delta tables by their address; a commit is one object that only one writer can create."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from sgpu.errors import IntegrityError, StageError, UsageError
from sgpu.storage.location import Location, explain_storage_error

COMMIT_TRIES = 50
WAIT_S = 0.2
_CODE = re.compile("%[0-9A-Fa-f]{2}")


@contextmanager
def table_errors(folder: Location) -> Iterator[None]:
    """As `Location.errors`, also for what delta-rs raises where object storage breaks off an answer."""
    try:
        with folder.errors():
            yield
    except (CommitFailedError, TableNotFoundError):
        raise
    except DeltaError as error:
        if folder.is_local:
            raise
        raise StageError(explain_storage_error(folder.scheme, folder.path, str(error))) from error


def open_table(folder: Location) -> DeltaTable | None:
    """Open the table as it stands now; None if there is none."""
    try:
        with table_errors(folder):
            return DeltaTable(_address(folder), storage_options=folder.storage_options)
    except TableNotFoundError:
        return None


def _address(folder: Location) -> str:
    if folder.is_local and (code := _CODE.search(folder.path)):
        raise UsageError(
            f"{folder} cannot hold a table: {code.group()} in its name would be read as another letter. "
            "Name another folder."
        )
    return str(folder)


def check_columns(table: DeltaTable, folder: Location, schema: pa.Schema) -> None:
    """Raise UsageError for a table with other columns."""
    if differ := {field.name for field in table.schema().fields} ^ set(schema.names):
        raise UsageError(
            f"{folder} was written by another version of SGPU, whose columns differ: "
            f"{', '.join(sorted(differ)[:5])}. Give another --out, or use the version that wrote it."
        )


def open_or_create(folder: Location, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
    """Open the table, or create it; of several writers at once one creates it, and all get the same.

    Raises UsageError for a table with other columns.
    """
    table = open_table(folder)
    if table is not None:
        check_columns(table, folder, schema)
        return table
    folder.make_folder()
    try:
        with table_errors(folder):
            return DeltaTable.create(
                _address(folder),
                schema=schema,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=folder.storage_options,
                # A second try would be a second creation on top of the first.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
    except CommitFailedError:  # somebody else has created it since
        table = open_table(folder)
        if table is None:
            raise
        return table


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


def waits(action: str) -> Iterator[None]:
    """Wait a short random time whenever others were faster with a commit; in the end raise StageError."""
    for _ in range(COMMIT_TRIES):
        time.sleep(WAIT_S * random.random())
        yield
    raise StageError(f"could not {action} after {COMMIT_TRIES} tries; try again")


def commit(
    root: Location,
    delta: DeltaTable,
    actions: Sequence[AddAction],
    names: Sequence[str],
    generation: int,
    metadata: Mapping[str, str],
    replaced: Sequence[tuple[str, str, str]] = (),
    retries: int | None = None,
) -> bool:
    """Add files to a table, or replace the partition of the filters by them; False if another was faster.

    ``names`` are the application transactions of the commit; ``retries`` those of delta-rs itself.
    """
    try:
        with table_errors(root):
            delta.create_write_transaction(
                list(actions),
                mode="overwrite" if replaced else "append",
                schema=delta.schema(),
                partition_by=delta.metadata().partition_columns or None,
                partition_filters=list(replaced) or None,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(name, generation) for name in names],
                    custom_metadata=dict(metadata),
                    max_commit_retries=retries,
                ),
            )
    except CommitFailedError:
        return False
    return True


def add_actions(
    root: Location, files: Mapping[Location, Mapping[str, Any]], partition: Mapping[str, str]
) -> list[AddAction]:
    """Return what a commit says of files of the table ``root``, each with its statistics as the log has them.

    Raises StageError if a file is gone, for instance because somebody has cleaned up.
    """
    infos = _listed(files)
    if gone := [file.name for file in files if file not in infos]:
        raise StageError(
            f"{len(gone)} files that were to be committed are gone from {root} (first: {gone[0]}). Run the "
            "same command again; what is missing is made anew."
        )
    return [
        AddAction(
            path=file.path.removeprefix(f"{root.path}/"),
            size=infos[file].size,
            partition_values=dict(partition),
            modification_time=infos[file].mtime_ns // 1_000_000,
            data_change=True,
            stats=json.dumps(dict(statistics)),
        )
        for file, statistics in files.items()
    ]


def _listed(files: Iterable[Location]) -> dict[Location, Any]:
    """Return `Location.info` of the files that exist; one request for each folder, and not for each file."""
    return {file: info for folder in {file.parent for file in files} for file, info in folder.infos().items()}


@dataclass(frozen=True)
class LoggedFile:
    """An active file of a table as the log has it; ``rows`` is None where the log does not say."""

    location: Location
    partition: Mapping[str, str]
    size: int
    rows: int | None


def logged_files(root: Location, delta: DeltaTable) -> list[LoggedFile]:
    """Read the log's list of the active files of the table ``root``, without statistics of their columns.

    The addresses that delta-rs gives of them are encoded as a whole, so that they do not lead to files
    beneath a folder with a space or a letter beyond ASCII. Paths in the log are encoded once, whatever the
    root is called.
    """
    mark = "partition."
    actions = pa.table(delta.get_add_actions(flatten=True))
    wanted = ("path", "size_bytes", "num_records")
    names = [name for name in actions.column_names if name in wanted or name.startswith(mark)]
    return [
        LoggedFile(
            root / unquote(action["path"]),
            {name.removeprefix(mark): value for name, value in action.items() if name.startswith(mark)},
            action["size_bytes"],
            action.get("num_records"),
        )
        for action in actions.select(names).to_pylist()
    ]


def check_sizes(files: Collection[LoggedFile]) -> None:
    """Raise IntegrityError if a file has not as many bytes as the log says.

    One that is gone is left to whoever reads it.
    """
    infos = _listed(file.location for file in files)
    for file in files:
        actual = (infos.get(file.location) or file.location.info()).size
        if actual is not None and actual != file.size:
            raise IntegrityError(
                f"{file.location} has {actual} bytes, but {file.size} in the log of its table: it was "
                "changed after it was published. Restore it, or remove the table and run again."
            )
