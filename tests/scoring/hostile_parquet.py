"""Parquet files that no honest writer makes: a few bytes that end a reader, or take all of its memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.scoring.log_folders import row

OF_A_GROUP = 100


def _number(value: int) -> bytes:
    """An unsigned number in Thrift's compact form."""
    pieces = []
    while True:
        value, low = value >> 7, value & 0x7F
        pieces.append(low | (0x80 if value else 0))
        if not value:
            return bytes(pieces)


def _with_footer(pages: bytes, footer: bytes) -> bytes:
    return pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def deep(file: Path, levels: int) -> Path:
    """A footer whose schema is ``levels`` groups, each in the other; Arrow goes through it by recursion."""
    group = b"\x35\x02\x18\x01a\x15\x02\x00"
    root, leaf = b"\x48\x06schema\x15\x02\x00", b"\x15\x02\x25\x02\x18\x01x\x00"
    schema = b"\x19\xfc" + _number(levels + 2) + root + group * levels + leaf
    file.write_bytes(_with_footer(b"PAR1", b"\x15\x02" + schema + b"\x16\x00\x19\x0c\x00"))
    return file


def forged_counts(file: Path, rows: int) -> Path:
    """Two row groups that cannot be read, and that claim ``rows`` each."""
    pq.write_table(
        pa.Table.from_pylist([row(i) for i in range(2 * OF_A_GROUP)]), file, row_group_size=OF_A_GROUP
    )
    whole = file.read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - size : -8].replace(
        b"\x16" + _number(2 * OF_A_GROUP),
        b"\x16" + _number(2 * rows),  # signed numbers are doubled
    )
    file.write_bytes(_with_footer(b"PAR1" + bytes(len(whole) - size - 12), footer))
    return file


def bomb(file: Path, rows: int, megabytes: int, column: str) -> Path:
    """Rows that all hold the same text, which stands in the file once, and packed."""
    one = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * megabytes * 2**20])
    )
    table = pa.Table.from_pylist([row(i) for i in range(rows)])
    if column in table.column_names:
        table = table.drop_columns([column])
    pq.write_table(
        table.append_column(column, one), file, compression="zstd", dictionary_pagesize_limit=2**30
    )
    return file
