"""Delta tables by their address; a commit is one object that only one writer can create."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from sgpu.location import Location


def open_table(folder: Location) -> DeltaTable | None:
    """The table as it stands now; None if there is none."""
    try:
        with folder.errors():
            return DeltaTable(str(folder), storage_options=folder.storage_options)
    except TableNotFoundError:
        return None


def open_or_create(folder: Location, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
    """As `open_table`; of several that create it at once one does, and all get the same table."""
    found = open_table(folder)
    if found is not None:
        return found
    folder.make_folder()
    try:
        with folder.errors():
            return DeltaTable.create(
                str(folder),
                schema=schema,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=folder.storage_options,
                # A second try would be a second creation on top of the first.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
    except CommitFailedError:  # somebody else has created it since
        found = open_table(folder)
        if found is None:
            raise
        return found


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
