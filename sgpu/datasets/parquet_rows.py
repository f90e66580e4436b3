"""Rows of Parquet files as Hub data sets store them, without the bytes of their images."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.datasets.checks import expect_columns
from sgpu.errors import DataError
from sgpu.storage.parquet_files import opened

BATCH_ROWS = 1024
IMAGES = 16  # rows at a time where images are read


def files_of_split(root: Path, *splits: str) -> list[Path]:
    """Parquet files below ``root`` of the first of ``splits`` that has any, in the order of their names.

    Both Hub layouts count: ``data/train-00000-of-00002-….parquet`` and ``default/train/0000.parquet``.
    """
    found = sorted(root.rglob("*.parquet"), key=lambda file: file.relative_to(root).as_posix())
    for split in splits:
        named = re.compile(re.escape(split) + r"([-_.].*)?\.parquet")
        files = [file for file in found if named.fullmatch(file.name) or file.parent.name == split]
        if files:
            return files
    return []


def iter_rows(
    files: Sequence[Path], columns: Collection[str], optional: Collection[str] = ()
) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """The file, the row's index inside the file, and the row with ``columns`` alone.

    Columns in ``optional`` are read where a file has them. Raises DataError for a file that is not Parquet
    or is cut off, and for a column that is absent, which names the columns expected and found.
    """
    for file in files:
        parquet = _open(file, columns)
        wanted = [name for name in parquet.schema_arrow.names if name in columns or name in optional]
        batches = parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted)
        row = 0
        while True:
            with _readable(file):
                batch = next(batches, None)
                records = None if batch is None else batch.to_pylist()
            if records is None:
                break
            for record in records:
                yield file, row, record
                row += 1


def column_names(file: Path) -> list[str]:
    """The columns of a Parquet file. Raises DataError if it cannot be read."""
    return list(_open(file, ()).schema_arrow.names)


def rows_without_image(file: Path, column: str = "image") -> frozenset[int]:
    """Indices of the rows whose image cell has no bytes.

    Row groups without a null by their statistics are not read, so that gigabytes of images stay on disk.
    Raises DataError for a file that cannot be read or has no such column.
    """
    parquet = _open(file, {column})
    is_struct = pa.types.is_struct(parquet.schema_arrow.field(column).type)
    leaf = f"{column}.bytes" if is_struct else column
    absent: set[int] = set()
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        metadata = parquet.metadata.row_group(group)
        if not _without_nulls(metadata, leaf):
            with _readable(file):
                batches = parquet.iter_batches(batch_size=IMAGES, row_groups=[group], columns=[leaf])
                cells = (cell for batch in batches for cell in batch.column(0).to_pylist())
                present = ((cell or {}).get("bytes") if is_struct else cell for cell in cells)
                absent |= {first + index for index, data in enumerate(present) if not data}
        first += metadata.num_rows
    return frozenset(absent)


def _open(file: Path, columns: Collection[str]) -> Any:
    with _readable(file):
        parquet = opened(file)
    expect_columns(file, parquet.schema_arrow.names, columns)
    return parquet


def _without_nulls(metadata: Any, leaf: str) -> bool:
    for index in range(metadata.num_columns):
        chunk = metadata.column(index)
        if chunk.path_in_schema == leaf:
            statistics = chunk.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return False
            # Large values have no minimum; where there is one, an empty cell is the smallest.
            return not statistics.has_min_max or bool(statistics.min)
    return False


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as Parquet: {error}. Fetch it again.") from None
