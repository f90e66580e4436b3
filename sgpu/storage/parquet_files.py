"""The one place where Parquet, Arrow IPC and Feather files are opened, on this machine or in object storage.

A package that is imported may register Arrow extension types whose values run code when they are read: Ray
Data's pickled objects, for one. Whoever writes a file names the type. So every file with a column of an
extension type, at any depth, registered here or not, is refused before a value of it is made, and no other
module may open such files (`tests/security/forbidden_code.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.storage.location import Location

# A small file is mostly waiting: in object storage some ten milliseconds. On two cores more do not pay.
THREADS = 8
# With it Ray unpickles what describes a type, while a file is opened and before its types can be looked at.
UNPICKLES = "RAY_DATA_AUTOLOAD_CLOUDPICKLE_TENSOR_METADATA"
EXTENSION = b"ARROW:extension:name"
T = TypeVar("T")


def for_each(function: Callable[[Location], T], files: Sequence[Location]) -> list[T]:
    """What ``function`` says of each file, in their order, several at a time; raises the first error."""
    if len(files) < 2:
        return [function(file) for file in files]
    with ThreadPoolExecutor(min(THREADS, len(files))) as pool:
        return list(pool.map(function, files))


def opened(file: Location | Path | str, **options: Any) -> Any:
    """A Parquet file (`pyarrow.parquet.ParquetFile`, with its ``options``) to read a part at a time.

    Raises IntegrityError for an extension type, which names file and column; ArrowInvalid or OSError for a
    file that is not Parquet or was cut short.
    """
    location = Location.of(file)
    with location.errors():
        return opened_stream(location.path, str(location), filesystem=location.filesystem, **options)


def opened_stream(source: Any, name: str, **options: Any) -> Any:
    """As `opened`, of a path or a binary file that is open already; errors call it ``name``."""
    _check_environment()
    # Off: JSON and UUID columns of other writers come as text and bytes, and not as extension types.
    parquet = pq.ParquetFile(source, arrow_extensions_enabled=False, **options)
    try:
        refuse_extensions(parquet.schema_arrow, name)
    except IntegrityError:
        parquet.close()
        raise
    return parquet


def read_rows(file: Location | Path | str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one Parquet file, of all its columns if none are named.

    What its folders are called adds no columns. Raises as `opened`, and DataError for a column that is not
    there.
    """
    location = Location.of(file)
    with location.errors(), opened(location) as parquet:
        names = parquet.schema_arrow.names
        if absent := sorted(set(columns or ()) - set(names)):
            raise DataError(f"{location} has no column {', '.join(absent)}; it has {', '.join(names)[:300]}")
        return parquet.read(columns=None if columns is None else list(columns))


def row_count(file: Location | Path | str) -> int:
    """From the footer alone. Raises as `opened`."""
    with opened(file) as parquet:
        return int(parquet.metadata.num_rows)


def schema_of(file: Location | Path | str) -> pa.Schema:
    """The columns of a Parquet file with the metadata that stand beside them. Raises as `opened`."""
    with opened(file) as parquet:
        return parquet.schema_arrow


def opened_arrow(source: Any, name: str, columns: Sequence[str] | None = None) -> Any:
    """A reader of the record batches of an Arrow IPC file (also Feather), with these columns alone.

    ``source``: a path or a binary file; errors call it ``name``. Raises as `opened`.
    """
    _check_environment()
    stream = pa.OSFile(os.fspath(source)) if isinstance(source, str | Path) else source
    schema = pa.ipc.open_file(stream).schema
    refuse_extensions(schema, name)
    wanted = None if columns is None else [i for i, name in enumerate(schema.names) if name in columns]
    return pa.ipc.open_file(stream, options=pa.ipc.IpcReadOptions(included_fields=wanted))


def read_arrow(file: Path, columns: Sequence[str]) -> pa.Table:
    """The rows of an Arrow IPC or Feather file, of those of ``columns`` that it has. Raises as `opened`."""
    with pa.OSFile(str(file)) as stream:
        return opened_arrow(stream, str(file), columns).read_all()


def write_rows(file: Location | str, rows: pa.Table) -> None:
    """Write a whole table as one file; readers see it whole on object storage only."""
    location = Location.of(file)
    with location.errors():
        pq.write_table(rows, location.path, filesystem=location.filesystem)


def parquet_bytes(rows: pa.Table, **options: Any) -> bytes:
    """A Parquet file in memory, with the ``options`` of `pyarrow.parquet.write_table`."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return sink.getvalue().to_pybytes()


def parquet_writer(file: Location, schema: pa.Schema) -> Any:
    """A `pyarrow.parquet.ParquetWriter` of a new file."""
    return pq.ParquetWriter(file.path, schema, filesystem=file.filesystem)


def write_parts(folder: Location, rows: Any, column: str, most: int) -> None:
    """Write rows (a RecordBatchReader) as Parquet files of ``folder``/VALUE for each value of ``column``.

    In one pass, with at most so many files open at once, and as many values.
    """
    kind = ds.partitioning(pa.schema([rows.schema.field(column)]))
    with folder.errors():
        ds.write_dataset(
            rows,
            folder.path,
            format="parquet",
            filesystem=folder.filesystem,
            partitioning=kind,
            max_open_files=most,
            max_partitions=most,
            create_dir=folder.is_local,
        )


def write_arrow(sink: Any, batches: Iterable[Any], schema: pa.Schema) -> None:
    """Write record batches as an Arrow IPC file, which Feather is too. ``sink``: a path or a stream."""
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def refuse_extensions(schema: pa.Schema, name: str) -> None:
    """Raise IntegrityError if any column of the file ``name``, or a part of one, is of an extension type."""
    waiting = [(field.name, field) for field in schema]
    while waiting:  # a schema may be nested more deeply than Python calls
        path, field = waiting.pop()
        kind = field.type
        extension = (field.metadata or {}).get(EXTENSION, b"").decode("utf-8", "replace")
        if isinstance(kind, pa.BaseExtensionType) or extension:
            raise IntegrityError(
                f"{name}: the column {ascii(path)[:80]} is of the extension type "
                f"{ascii(extension or kind.extension_name)[:80]}. Values of such types can run code when "
                "they are read, so nothing was read. Write the column as plain text, numbers or lists."
            )
        waiting += [(f"{path}.{child.name}", child) for child in _children(kind)]


def _children(kind: Any) -> list[Any]:
    """The fields inside a type."""
    if isinstance(kind, pa.DictionaryType):
        return [pa.field("value", kind.value_type)]
    if isinstance(kind, pa.MapType):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]


def _check_environment() -> None:
    if os.environ.get(UNPICKLES) == "1":
        raise UsageError(f"{UNPICKLES}=1 lets files run code while they are opened; unset it")
