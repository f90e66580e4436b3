"""Rows of a Parquet file, by row groups: what can be read is, and what cannot is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sgpu.errors import IntegrityError
from sgpu.parquet_files import opened_stream
from sgpu.scoring.pinned_file import FileFault, PinnedFile
from sgpu.scoring.records import Reason
from sgpu.scoring.rows.fault import RowFault

_MAGIC = b"PAR1"
_BATCH_ROWS = 256
_BUFFER_BYTES = 2**20  # pages are read one after the other, not a whole column of a row group at once


def parquet_rows(file: PinnedFile, start: int, end: int) -> Iterator[dict[str, Any] | RowFault | int]:
    """The rows of the row groups that start in bytes ``start`` to ``end``.

    A row that cannot become values is a RowFault; of a broken row group, its rows that were not read are one
    RowFault, followed by their number less one. Raises FileFault where the file as a whole cannot be read.
    """
    try:
        parquet = opened_stream(file, "Parquet", buffer_size=_BUFFER_BYTES, pre_buffer=False)
        names = parquet.schema_arrow.names
        groups = [
            place
            for place in range(parquet.num_row_groups)
            if start <= _start(parquet, place, file.size) < end
        ]
    except IntegrityError as error:
        raise FileFault(Reason.FILE_UNREADABLE, str(error)) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file) from error
    if len(set(names)) != len(names):
        raise FileFault(Reason.FILE_UNREADABLE, "Parquet: two columns have one name")
    for group in groups:
        yield from _group(parquet, group)


def _start(parquet: Any, group: int, size: int) -> int:
    """Where a row group starts; a place that cannot be is moved into the file, so that one split has it."""
    found = parquet.metadata.row_group(group)
    starts = [
        offset
        for column in (found.column(place) for place in range(found.num_columns))
        for offset in (column.dictionary_page_offset, column.data_page_offset)
        if offset is not None and offset > 0
    ]
    return min(min(starts, default=0), size - 1)


def _group(parquet: Any, group: int) -> Iterator[dict[str, Any] | RowFault | int]:
    rows, done = int(parquet.metadata.row_group(group).num_rows), 0
    try:
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], use_threads=False):
            yield from _values(batch)
            done += len(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        left = max(rows - done, 1)
        detail = f"Parquet: {left} rows of row group {group} cannot be read ({type(error).__name__})"
        yield RowFault(Reason.FILE_UNREADABLE, detail)
        yield left - 1


def _values(batch: Any) -> Iterator[dict[str, Any] | RowFault]:
    try:
        yield from batch.to_pylist()
        return
    except Exception:
        pass  # one value among them: the rows are taken one by one
    for place in range(len(batch)):
        try:
            yield batch.slice(place, 1).to_pylist()[0]
        except UnicodeDecodeError:
            yield RowFault(Reason.ENCODING, "a text of the row is not UTF-8")
        except Exception as error:
            yield RowFault(Reason.BAD_VALUE, f"a value of the row cannot be read ({type(error).__name__})")


def _unreadable(file: PinnedFile) -> FileFault:
    file.seek(0)
    begins = file.read(len(_MAGIC)) == _MAGIC
    file.seek(max(file.size - len(_MAGIC), 0))
    ends = file.read(len(_MAGIC)) == _MAGIC
    if begins and not ends:
        # What the file holds stands at its end: without it no row can be found.
        return FileFault(Reason.FILE_TRUNCATED, "Parquet: cut short, the end is missing")
    return FileFault(Reason.FILE_UNREADABLE, "Parquet: not a readable file")
