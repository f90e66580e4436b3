"""The files of a day: JSON Lines plain, in gzip and in Zstandard, Parquet, and the pairs of batch files.

What is written depends on nothing but the rows: no file holds a time or a name of this machine.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from bench.constructed_logs.faults import Planted
from bench.constructed_logs.rendering import Row

NoteDown = Callable[[Path, int, tuple[Planted, ...]], None]  # called with the line that a row got
PARQUET_ROWS = 1000
BATCH_ROWS = 500
_SAMPLE = pa.struct([("index", pa.int32()), ("text", pa.string()), ("finish_reason", pa.string())])
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_SAMPLING = pa.struct([("n", pa.int32()), ("temperature", pa.float64()), ("top_p", pa.float64())])
PARQUET_SCHEMA = pa.schema(
    {
        "schema_version": pa.int32(),
        "request_id": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "model": pa.string(),
        "messages": pa.list_(_MESSAGE),
        "samples": pa.list_(_SAMPLE),
        "sampling": _SAMPLING,
        "label": pa.int8(),
        "route": pa.string(),
    }
)


class Sink(Protocol):
    def add(self, row: Row) -> None: ...

    def close(self) -> None: ...


class LineFile:
    """A file of lines; its extension says how it is packed."""

    def __init__(self, path: Path, note: NoteDown) -> None:
        self._path, self._note, self._line = path, note, 0
        if path.suffix == ".zst":
            self._stream: Any = pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd")
        elif path.suffix == ".gz":
            self._raw = path.open("wb")
            self._stream = gzip.GzipFile("", "wb", 6, self._raw, mtime=0)
        else:
            self._stream = path.open("wb")

    def add(self, row: Row) -> None:
        self._line += 1
        self._stream.write(row.line + b"\n")
        self._note(self._path, self._line, row.planted)

    def close(self) -> None:
        self._stream.close()
        if self._path.suffix == ".gz":
            self._raw.close()


class ParquetFile:
    """A file of SGPU's own rows, in row groups of `PARQUET_ROWS`."""

    def __init__(self, path: Path, note: NoteDown) -> None:
        self._path, self._note, self._line = path, note, 0
        self._writer = pq.ParquetWriter(path, PARQUET_SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, row: Row) -> None:
        assert row.record is not None, f"a row for {self._path} has no record"
        self._line += 1
        time = datetime.fromisoformat(row.record["timestamp"])
        self._rows.append({**row.record, "timestamp": time})
        self._note(self._path, self._line, row.planted)
        if len(self._rows) == PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, PARQUET_SCHEMA))
        self._rows = []


class BatchFiles:
    """Pairs of input and output files; an output comes in another order than its input."""

    def __init__(self, folder: Path, note: NoteDown, order: Random) -> None:
        self._folder, self._note, self._order = folder, note, order
        self._inputs: list[Row] = []
        self._outputs: list[Row] = []
        self._pairs = 0

    def add(self, row: Row) -> None:
        (self._inputs if row.stream == "batch-input" else self._outputs).append(row)
        if len(self._outputs) >= BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._order.shuffle(self._outputs)
        packed = ".gz" if self._pairs % 2 else ""
        for side, rows in (("input", self._inputs), ("output", self._outputs)):
            if rows:
                file = LineFile(self._folder / f"batch-{self._pairs:04d}-{side}.jsonl{packed}", self._note)
                for row in rows:
                    file.add(row)
                file.close()
        self._pairs += 1
        self._inputs, self._outputs = [], []
