"""Rows with their texts, brought together by a key: on disk, in one pass, and in parts that fit into memory.

Queries hold keys and no texts (`sgpu.scoring.sets.relations`), so that what a night holds at once does not
depend on how much was written in an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from sgpu.scoring.sets.relations import Rows
from sgpu.scoring.sets.work_rows import ITEMS_OF_A_FILE
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened, read_rows, write_parts

ROWS_OF_A_PART = 50_000
CHARACTERS_OF_A_PART = 64 * 2**20
MOST_PARTS = 512  # files that are open at once
_PART = "part"


def parts_for(rows: int, characters: float) -> int:
    """In how many parts such rows fit into memory one after the other."""
    return int(min(MOST_PARTS, 1 + max(rows / ROWS_OF_A_PART, characters / CHARACTERS_OF_A_PART)))


def shuffle(folder: Location, rows: Rows, key: str, parts: int) -> None:
    """Write rows into ``parts`` folders, so that those with one key are in one of them."""
    folder.delete()  # what a run left that was killed here
    numbered = Rows(rows.schema.append(pa.field(_PART, pa.int32())), _numbered(rows, key, parts))
    write_parts(folder, numbered.reader(), _PART, MOST_PARTS)


def _numbered(rows: Rows, key: str, parts: int) -> Iterator[pa.Table]:
    for table in rows:
        hashes = pl.Series(table[key].to_pylist(), dtype=pl.String).hash(seed=0).to_numpy()
        yield table.append_column(_PART, pa.array((hashes % parts).astype(np.int32)))


def part_of(folder: Location, number: int, order: Sequence[str]) -> pa.Table | None:
    """One part in ascending order of these columns; None where no key is in it."""
    files = (folder / str(number)).files(".parquet")
    if not files:
        return None
    return pa.concat_tables(map(read_rows, files)).sort_by([(column, "ascending") for column in order])


def regrouped(
    folder: Location, pieces: Iterator[pa.Table], parts: int, order: Sequence[str]
) -> Iterator[pa.Table]:
    """The same rows in ``parts`` by the first column of ``order``, and within each in that order."""
    if (first := next(pieces, None)) is None:
        return
    shuffle(folder, Rows(first.schema, itertools.chain([first], pieces)), order[0], parts)
    for number in range(parts):
        if (part := part_of(folder, number, order)) is not None:
            yield part


def with_columns(
    pieces: Iterable[pa.Table], files: Sequence[Location], schema: pa.Schema
) -> Iterator[pa.Table]:
    """Rows with these columns of the rows of ``files`` that their ``item`` numbers.

    ``pieces`` come in ascending order of it; what is below 0 is no row of a file, and gets nulls.
    """
    opened_number, rows = -1, schema.empty_table()  # a file goes on in the next piece
    for piece in pieces:
        numbers, places = np.divmod(piece["item"].to_numpy(), ITEMS_OF_A_FILE)
        parts = [pa.nulls(int((numbers < 0).sum()), field.type) for field in schema]
        tables = [pa.Table.from_arrays(parts, schema=schema)]
        for number in np.unique(numbers[numbers >= 0]):
            if number != opened_number:
                with opened(files[number]) as parquet:
                    # Whoever takes these rows may hold all of Arrow's threads while it waits for them.
                    rows = parquet.read(columns=schema.names, use_threads=False).select(schema.names)
                opened_number = number
            tables.append(rows.take(pa.array(places[numbers == number])).cast(schema))
        columns = pa.concat_tables(tables)
        for field in schema:
            piece = piece.append_column(field, columns[field.name])
        yield piece
