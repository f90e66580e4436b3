"""Parquet files by their address, on this machine or in object storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from sgpu.location import Location

# A small file is mostly waiting: in object storage some ten milliseconds. On two cores more do not pay.
THREADS = 8
T = TypeVar("T")


def for_each(function: Callable[[Location], T], files: Sequence[Location]) -> list[T]:
    """What ``function`` says of each file, in their order, several at a time; raises the first error."""
    if len(files) < 2:
        return [function(file) for file in files]
    with ThreadPoolExecutor(min(THREADS, len(files))) as pool:
        return list(pool.map(function, files))


def read_rows(file: Location | str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file; what its folders are called adds no columns."""
    place = Location.of(file)
    wanted = list(columns) if columns is not None else None
    with place.errors():
        return pq.read_table(place.path, columns=wanted, partitioning=None, filesystem=place.filesystem)


def row_count(file: Location | str) -> int:
    """From the footer alone. Raises ArrowInvalid for a file that was cut short."""
    place = Location.of(file)
    with place.errors():
        return int(pq.read_metadata(place.path, filesystem=place.filesystem).num_rows)


def opened(file: Location | str) -> pq.ParquetFile:
    """A file to read a part at a time."""
    place = Location.of(file)
    with place.errors():
        return pq.ParquetFile(place.path, filesystem=place.filesystem)


def write_rows(file: Location | str, rows: pa.Table) -> None:
    """Write a whole table as one file; readers see it whole on object storage only."""
    place = Location.of(file)
    with place.errors():
        pq.write_table(rows, place.path, filesystem=place.filesystem)
