"""Delta tables by their address; a commit is one object that only one writer can create."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """The table as it stands now; None if there is none."""
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


def open_or_create(folder: Location, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
    """As `open_table`; of several that create it at once one does, and all get the same table."""
    table = open_table(folder)
    if table is not None:
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
    """A short wait whenever others were faster with a commit, not as long for all; in the end StageError."""
    for _ in range(COMMIT_TRIES):
        time.sleep(WAIT_S * random.random())
        yield
    raise StageError(f"could not {action} after {COMMIT_TRIES} tries; try again")


def committed(
    root: Location,
    delta: DeltaTable,
    actions: Sequence[AddAction],
    names: Sequence[str],
    generation: int,
    metadata: Mapping[str, str],
    replaced: Sequence[tuple[str, str, str]] = (),
    retries: int | None = None,
) -> bool:
    """Add files to a table, or replace the partition of the filters by them; False if somebody was faster.

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
    """What a commit says of files of the table ``root``, each with its statistics as the log has them.

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
    """`Location.info` by file of those that exist; one request for each folder, and not for each file."""
    return {file: info for folder in {file.parent for file in files} for file, info in folder.infos().items()}


def active_files(root: Location, delta: DeltaTable) -> list[tuple[dict[str, str], Location]]:
    """The files of the table ``root`` as the log has them, each with its partition.

    The addresses that delta-rs gives of them are encoded as a whole, so that they do not lead to files
    beneath a folder with a space or a letter beyond ASCII. Paths in the log are encoded once, whatever the
    root is called.
    """
    mark = "partition."
    return [
        ({name.removeprefix(mark): value for name, value in action.items() if name.startswith(mark)}, file)
        for file, action in _logged(root, delta).items()
    ]


def _logged(root: Location, delta: DeltaTable) -> dict[Location, dict[str, Any]]:
    """What the log says of each active file, statistics of its columns left out."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    wanted = [
        name
        for name in actions.column_names
        if name in ("path", "size_bytes", "num_records") or name.startswith("partition.")
    ]
    return {root / unquote(action["path"]): action for action in actions.select(wanted).to_pylist()}


def check_sizes(root: Location, delta: DeltaTable, files: Collection[Location]) -> None:
    """Raise IntegrityError if a file of the table ``root`` has not as many bytes as the log says.

    One that is gone is left to whoever reads it.
    """
    logged = _logged(root, delta)
    infos = _listed(files)
    for file in files:
        actual = (infos.get(file) or file.info()).size
        if actual is not None and actual != (size := logged[file]["size_bytes"]):
            raise IntegrityError(
                f"{file} has {actual} bytes, but {size} in the log of its table: it was changed after "
                "it was published. Restore it; where that cannot be, remove the table and run again."
            )


def logged_rows(root: Location, delta: DeltaTable) -> dict[Location, int]:
    """The rows of each file of the table ``root``, of those that the log has them of."""
    rows = {file: action.get("num_records") for file, action in _logged(root, delta).items()}
    return {file: number for file, number in rows.items() if number is not None}
