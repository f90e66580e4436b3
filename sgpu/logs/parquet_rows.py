"""Rows of a Parquet file, by row groups: what can be read is, and what cannot is named.

A few kilobytes of Parquet may hold any amount, as a value that stands once is repeated by a number. So rows
come in batches of bounded size, and only columns that a format has are read. It runs in the process of
`sgpu.logs.parquet_process`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sgpu.errors import IntegrityError
from sgpu.logs.pinned_file import FileFault, PinnedFile
from sgpu.logs.records import Reason
from sgpu.logs.rows.fields import RowFault
from sgpu.storage.json_lines import MAX_LINE_BYTES
from sgpu.storage.parquet_files import opened_stream

_MAGIC = b"PAR1"
_BUFFER_BYTES = 2**20  # pages are read one after the other, not a whole column of a row group at once
MOST_ROWS = 2**40  # of a file; 8 TB of rows of one byte each
BATCH_BYTES = 64 * 2**20
BATCH_ROWS = 256
# A value takes this much as a Python object, even where Arrow needs next to nothing for it.
VALUE_BYTES = 64
MAX_VALUES = MAX_LINE_BYTES // 4  # of one row, its lists and objects counted with all that is in them
_STEP = 16
_DICTIONARY = 2  # a kind of page, https://github.com/apache/parquet-format
_INTEGER = b"\x15"  # the next field, of 32 bits
_PAGE_HEAD = 16


@dataclass(frozen=True)
class Begun:
    """A row group begins at this byte of the file."""

    start: int


@dataclass(frozen=True)
class Skipped:
    """Rows that are told of already, by a RowFault, and not one by one."""

    rows: int


Part = Any | RowFault | Skipped | Begun  # Any: a record batch


def parquet_batches(file: PinnedFile, start: int, end: int, columns: Collection[str]) -> Iterator[Part]:
    """Record batches of the row groups that start in bytes ``start`` to ``end``, with these columns alone.

    A row above the bounds of a row is a RowFault; of a broken row group, its rows that were not read are one
    RowFault, and Skipped says how many there are beside it. Raises FileFault where the file as a whole cannot
    be read.
    """
    parquet = _opened(file)
    names = parquet.schema_arrow.names
    if len(set(names)) != len(names):
        raise FileFault(Reason.FILE_UNREADABLE, "Parquet: two columns have one name")
    wanted = [name for name in names if name in columns]
    if not wanted and parquet.metadata.num_rows:
        raise FileFault(Reason.UNKNOWN_FORMAT, f"Parquet: no column of any format among {ascii(names)[:200]}")
    batches = _Batches(parquet, wanted)
    for group in range(parquet.num_row_groups):
        offset = _start(parquet, group, file.size)
        if start <= offset < end:
            yield Begun(offset)
            _check_dictionaries(file, parquet, group, wanted)
            yield from batches.of(group)


def _opened(file: PinnedFile) -> Any:
    try:
        parquet = opened_stream(file, "Parquet", buffer_size=_BUFFER_BYTES, pre_buffer=False)
        counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        claimed = parquet.metadata.num_rows
    except IntegrityError as error:
        raise FileFault(Reason.FILE_UNREADABLE, str(error)) from None
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _unreadable(file) from error
    if min(counts, default=0) < 0 or sum(counts) != claimed or claimed > MOST_ROWS:
        detail = (
            f"Parquet: {claimed} rows, and {sum(counts)} in {len(counts)} row groups; at most {MOST_ROWS}"
        )
        raise FileFault(Reason.FILE_UNREADABLE, detail)
    return parquet


def _page_offsets(parquet: Any, group: int) -> Iterator[tuple[Any, list[int]]]:
    """Each column of a row group, and where its pages start as the file says."""
    metadata = parquet.metadata.row_group(group)
    for column in (metadata.column(index) for index in range(metadata.num_columns)):
        offsets = column.dictionary_page_offset, column.data_page_offset
        yield column, [offset for offset in offsets if offset]


def _start(parquet: Any, group: int, size: int) -> int:
    """Where a row group starts; a place that cannot be is moved into the file, so that one split has it."""
    starts = [offset for _, offsets in _page_offsets(parquet, group) for offset in offsets if offset > 0]
    return min(min(starts, default=0), size - 1)


def _check_dictionaries(file: PinnedFile, parquet: Any, group: int, columns: list[str]) -> None:
    """Raise FileFault for a dictionary of more than a row may hold: each row may repeat all of it."""
    for column, offsets in _page_offsets(parquet, group):
        name = column.path_in_schema
        if name.partition(".")[0] not in columns or not offsets:
            continue
        file.seek(min(offsets))
        kind, size = _page(file.read(_PAGE_HEAD))
        if kind == _DICTIONARY and size > MAX_LINE_BYTES:
            detail = f"Parquet: a dictionary of {ascii(name)[:80]} has {size} bytes; at most {MAX_LINE_BYTES}"
            raise FileFault(Reason.FILE_UNREADABLE, detail)


def _page(head: bytes) -> tuple[int, int]:
    """The kind and the unpacked size of a page: the first fields of its header, in Thrift's compact form."""
    numbers: list[int] = []
    position = 0
    while len(numbers) < 2 and head[position : position + 1] == _INTEGER:
        number, shift, position = 0, 0, position + 1
        while position < len(head):
            number |= (head[position] & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if not head[position - 1] & 0x80:
                break
        numbers.append(number >> 1 if not number & 1 else -(number >> 1) - 1)
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (-1, 0)


class _Batches:
    """Batches of as many rows as fit, from one row upward: what a row unpacks to stands nowhere in a file."""

    def __init__(self, parquet: Any, columns: list[str]) -> None:
        self._parquet, self._columns = parquet, columns
        self._rows, self._most = 1, BATCH_ROWS

    def of(self, group: int) -> Iterator[Any | RowFault | Skipped]:
        rows, n_read = int(self._parquet.metadata.row_group(group).num_rows), 0
        why = "it has fewer"
        while n_read < rows:
            before = n_read
            try:
                for batch in self._from(group, n_read):
                    if weight(batch) > BATCH_BYTES and len(batch) > 1 and self._smaller():
                        break
                    yield from _bounded(batch)
                    n_read += len(batch)
                    if self._can_grow(batch):
                        break
                else:
                    if n_read == before:
                        break
            except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
                if isinstance(error, MemoryError) and self._smaller():
                    continue
                why = type(error).__name__
                break
        if unread := rows - n_read:
            detail = f"Parquet: {unread} rows of row group {group} cannot be read ({why})"
            yield RowFault(Reason.FILE_UNREADABLE, detail)
            yield Skipped(unread - 1)

    def _from(self, group: int, n_read: int) -> Iterator[Any]:
        """Batches from the row ``n_read`` of the group; those before it are decoded again."""
        batches = self._parquet.iter_batches(
            batch_size=self._rows, row_groups=[group], columns=self._columns, use_threads=False
        )
        for batch in batches:
            if n_read < len(batch):
                yield batch.slice(n_read)
            n_read = max(0, n_read - len(batch))

    def _can_grow(self, batch: Any) -> bool:
        wanted = min(self._rows * _STEP, self._most)
        grows = len(batch) == self._rows < wanted and weight(batch) * _STEP < BATCH_BYTES
        self._rows = wanted if grows else self._rows
        return grows

    def _smaller(self) -> bool:
        """Whether batches can be smaller; they are from now on."""
        if self._rows == 1:
            return False
        self._rows = self._most = max(1, self._rows // _STEP)
        return True


def _bounded(batch: Any) -> Iterator[Any | RowFault]:
    """The batch, or its rows one by one where one of them may be above the bounds of a row."""
    size, values = _unpacked(batch)
    if size <= MAX_LINE_BYTES and values <= MAX_VALUES:
        yield batch
        return
    for index in range(len(batch)):
        row = batch.slice(index, 1)
        size, values = _unpacked(row)
        if size > MAX_LINE_BYTES or values > MAX_VALUES:
            bounds = f"at most {MAX_LINE_BYTES} and {MAX_VALUES}"
            yield RowFault(Reason.OVERSIZE, f"the row unpacks to {size} bytes and {values} values; {bounds}")
        else:
            yield row


def weight(batch: Any) -> int:
    """About what the rows take as Python objects."""
    size, values = _unpacked(batch)
    return size + VALUE_BYTES * values


def _unpacked(batch: Any) -> tuple[int, int]:
    """Bytes and values of the rows, lists and objects with all that is in them.

    A file may ask for a column as Arrow's dictionary, which holds a text once for all rows that have it: as
    Python objects each of these has the whole of it.
    """
    waiting, size, values = list(batch.columns), int(batch.nbytes), 0
    while waiting:
        array = waiting.pop()
        values += len(array)
        if isinstance(array, pa.DictionaryArray):
            size += pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
        elif isinstance(array, pa.StructArray):
            waiting += [array.field(index) for index in range(array.type.num_fields)]
        elif isinstance(array, pa.MapArray):
            waiting += [array.keys, array.items]
        elif array.type.num_fields:  # lists of all sorts
            waiting.append(array.flatten())
    return size, values


def _unreadable(file: PinnedFile) -> FileFault:
    file.seek(0)
    begins = file.read(len(_MAGIC)) == _MAGIC
    file.seek(max(file.size - len(_MAGIC), 0))
    ends = file.read(len(_MAGIC)) == _MAGIC
    if begins and not ends:
        # What the file holds stands at its end: without it no row can be found.
        return FileFault(Reason.FILE_TRUNCATED, "Parquet: cut short, the end is missing")
    return FileFault(Reason.FILE_UNREADABLE, "Parquet: not a readable file")
