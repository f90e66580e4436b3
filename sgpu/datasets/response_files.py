"""Raw records of a response file, one at a time, with the line that each came from.

Reads JSON Lines (`.jsonl`, `.ndjson`, plain or with `.gz` or `.zst`) and Parquet (`.parquet`). Whatever
makes the file as a whole unreadable raises DataError; a line that is not JSON is handed on as a fault.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from sgpu.datasets.response_rows import OPTIONAL, REQUIRED
from sgpu.errors import DataError
from sgpu.storage.parquet_files import opened

JSON_LINES = (".jsonl", ".ndjson")
COMPRESSED = ("", ".gz", ".zst")
MAX_LINE_BYTES = 16 * 2**20  # JSON of small values takes thirty times as much as Python objects


class RawRow(NamedTuple):
    """``row`` counts records from 1; ``line`` is the line of the file (JSON Lines only).

    ``unread``: columns of the file that no record needs, and which were not read (Parquet only).
    """

    row: int
    line: int | None
    record: dict[str, Any] | None
    fault: str | None = None
    unread: tuple[str, ...] = ()


def read_rows(path: Path) -> Iterator[RawRow]:
    """The records of ``path`` in order. Raises DataError, which names file, place and remedy."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a JSON Lines or Parquet file of responses.")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes). Write one record per question.")
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


def file_sha256(path: Path) -> str:
    """sha256 of the file as it is stored (compressed, if it is)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _open(path: Path) -> BinaryIO:
    known = [kind + packed for kind in JSON_LINES for packed in COMPRESSED] + [".parquet"]
    name = path.name.lower()
    if not name.endswith(tuple(known)):
        raise DataError(f"{path}: the kind of file is told by its extension. Known: {', '.join(known)}.")
    if name.endswith(".gz"):
        return gzip.open(path)  # type: ignore[return-value]
    return (
        io.BufferedReader(pa.input_stream(path, compression="zstd"))
        if name.endswith(".zst")
        else path.open("rb")
    )


def _json_rows(path: Path) -> Iterator[RawRow]:
    row, offset = 0, 0
    with _open(path) as stream:
        for line, raw in enumerate(_lines(path, stream), start=1):
            text = _decoded(path, raw, offset, line).strip()
            offset += len(raw)
            if text:
                row += 1
                yield _parsed(row, line, text)


def _lines(path: Path, stream: BinaryIO) -> Iterator[bytes]:
    """Lines that end in a line feed only; other separators may stand inside JSON strings."""
    line = 0
    try:
        while raw := stream.readline(MAX_LINE_BYTES + 1):
            line += 1
            if len(raw) > MAX_LINE_BYTES:
                raise DataError(
                    f"{path}: line {line} is longer than {MAX_LINE_BYTES} bytes. Write one record a line."
                )
            yield raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read after line {line}: {error}. The file may be cut short; write it again."
        ) from error


def _decoded(path: Path, raw: bytes, start: int, line: int) -> str:
    try:
        return raw.decode("utf-8").removeprefix("\ufeff" if line == 1 else "")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8: byte 0x{raw[error.start]:02x} at byte offset {start + error.start}, "
            f"line {line}. Convert the file to UTF-8."
        ) from error


def _parsed(row: int, line: int, text: str) -> RawRow:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return RawRow(row, line, None, f"is not JSON: {error}")
    if not isinstance(record, dict):
        return RawRow(row, line, None, f"is a JSON {type(record).__name__}, not an object")
    return RawRow(row, line, record)


def _parquet_rows(path: Path) -> Iterator[RawRow]:
    row = 0
    try:
        with opened(path) as parquet:
            names = parquet.schema_arrow.names
            needed = [name for name in names if name in (*REQUIRED, *OPTIONAL)]
            unread = tuple(name for name in names if name not in needed)
            for batch in parquet.iter_batches(batch_size=1024, columns=needed):
                for record in batch.to_pylist():
                    row += 1
                    yield RawRow(row, None, record, unread=unread)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: text after row {row} is not UTF-8: {error}. Write it as UTF-8.") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}. Write it again.") from error
