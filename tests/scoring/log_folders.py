"""Folders of logs for tests: rows written as the kinds of files that are read, and what is read of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sgpu.logs.reading import SplitEnd, read_split
from sgpu.logs.records import Item, LogRecord, NoAnswer, Rejected
from sgpu.logs.snapshot import Snapshot, splits_of, take_snapshot
from sgpu.storage.location import Location

DAY = date(2026, 11, 20)
WHOLE = 2**40


def row(i: int, **changes: Any) -> dict[str, Any]:
    """A row of the own schema with two answers, on the day."""
    samples = [{"index": 0, "text": f"answer {i}"}, {"index": 1, "text": "b"}]
    return {
        "request_id": f"r-{i}",
        "timestamp": "2026-11-20T12:00:00Z",
        "model": "m",
        "samples": samples,
        **changes,
    }


def json_lines(rows: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


def write(path: Path, rows: Sequence[Any] | bytes) -> Path:
    """Rows, or lines of bytes, as a file of the kind that its name tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = rows if isinstance(rows, bytes) else json_lines(rows)
    if path.suffix == ".parquet":
        assert not isinstance(rows, bytes)
        pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=7)
    elif path.suffix == ".zst":
        with pa.output_stream(path, compression="zstd") as stream:
            stream.write(text)
    else:
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def snapshot_of(folder: Path | str, day: date = DAY) -> Snapshot:
    return take_snapshot(Location.of(folder), day)


def read(
    folder: Path | str, snapshot: Snapshot | None = None, split_bytes: int = WHOLE, **settings: Any
) -> list[tuple[int | None, Item]]:
    """All items of a snapshot, split by split, with the lines counted through each file."""
    pinned = snapshot or snapshot_of(folder)
    found: list[tuple[int | None, Item]] = []
    before, file = 0, -1
    for split in splits_of(pinned, split_bytes):
        before, file = (before if split.file == file else 0), split.file
        *items, end = read_split(Location.of(folder), pinned, split, **settings)
        assert isinstance(end, SplitEnd)
        for one in items:
            assert isinstance(one, tuple)
            found.append((None if one[0] is None else before + one[0], one[1]))
        before += end.lines
    return found


def items(found: Sequence[tuple[int | None, Item]]) -> list[Item]:
    return [item for _, item in found]


def ids(found: Sequence[tuple[int | None, Item]]) -> list[str]:
    return [item.request_id for _, item in found if isinstance(item, LogRecord)]


def told(found: Sequence[tuple[int | None, Item]]) -> list[tuple[int | None, str]]:
    """Line and reason or kind of all that is no record."""
    return [
        (line, str(item.reason) if isinstance(item, Rejected) else item.kind)
        for line, item in found
        if isinstance(item, Rejected | NoAnswer)
    ]
