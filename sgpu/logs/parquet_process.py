"""Parquet files of strangers are decoded in a process that may die of them.

Arrow decodes in C++, where a hostile file ends a process (a schema of 20,000 levels) or takes any amount of
memory. So a process of its own, with a bound on its memory, opens the file and hands bounded batches of rows
on; where it dies, the file is at fault and the night goes on. A process serves many files, one at a time.

    python -m sgpu.logs.parquet_process     # requests on stdin, a JSON line each; answers on stdout
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.errors import StageError
from sgpu.logs.parquet_rows import Begun, Skipped, parquet_batches
from sgpu.logs.pinned_file import FileFault, PinnedFile
from sgpu.logs.records import Reason
from sgpu.logs.rows.fields import RowFault
from sgpu.logs.snapshot import LogFile, Split
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened_arrow, write_arrow

MEMORY_BYTES = 2**30  # beside what the process has when it begins
SILENCE_S = 300.0  # object storage alone may take a minute
DEATHS = 2  # a process may die of something else
_HEAD = struct.Struct(">cQ")
_ROWS, _END = b"A", b"E"
# What is no batch of rows: handed on as the values that it is made of, in JSON.
_MESSAGES = {b"R": RowFault, b"K": Skipped, b"G": Begun, b"F": FileFault, b"S": StageError}
_idle: list[subprocess.Popen[bytes]] = []  # taken and given back whole, so that threads need no lock


def read_split_rows(
    root: Location,
    location: Location,
    file: LogFile,
    split: Split,
    columns: Collection[str],
    passed: Callable[[int], None] = lambda size: None,
) -> Iterator[dict[str, Any] | RowFault | Skipped | Begun]:
    """Yield the rows of a split as `parquet_batches` does, with a RowFault for each that has no values.

    ``passed`` is told how many bytes were unpacked, and may raise to end it.

    Raises FileFault where the file as a whole cannot be read or has ended the process that read it, and
    StageError where object storage fails.
    """
    request = {
        "root": asdict(root),
        "location": asdict(location),
        "file": asdict(file),
        "start": split.start,
        "end": split.end,
        "columns": sorted(columns),
    }
    n_passed, why = 0, ""
    for _ in range(DEATHS):
        try:
            for number, (kind, payload) in enumerate(_answers(request)):
                if number >= n_passed:
                    n_passed += 1
                    passed(len(payload))
                    yield from _rows_of(kind, payload)
            return
        except _DeathError as death:
            why = str(death)
    detail = f"Parquet: {DEATHS} times it has ended the process that reads it ({why})"
    raise FileFault(Reason.FILE_UNREADABLE, detail)


class _DeathError(Exception):
    """How a process ended before its answer did."""


def _answers(request: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    process = _idle.pop() if _idle else _started()
    if process.poll() is not None:  # it has died since, of nothing that is asked now
        process = _started()
    try:
        kind = b""
        _ask(process, request)
        while kind != _END:
            kind, size = _HEAD.unpack(_received(process, _HEAD.size))
            payload = _received(process, size)
            if kind != _END:
                yield kind, payload
        _idle.append(process)
    finally:
        if process not in _idle:  # dead, silent, or no longer listened to
            process.kill()
            process.communicate()


def _started() -> subprocess.Popen[bytes]:
    # No core and no folder of the caller's: modules come from where this process has them.
    paths = os.pathsep.join(path for path in sys.path if path)
    bounds = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "PYTHONPATH": paths}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "sgpu.logs.parquet_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **bounds},
        bufsize=0,
    )


def _ask(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has died since its last answer: told when it is read
        process.stdin.write(json.dumps(request).encode() + b"\n")


def _received(process: subprocess.Popen[bytes], size: int) -> bytes:
    assert process.stdout is not None
    pieces, descriptor = [], process.stdout.fileno()
    while size:
        if not select.select([descriptor], [], [], SILENCE_S)[0]:
            raise _DeathError(f"no answer in {SILENCE_S:.0f} s")
        piece = os.read(descriptor, min(size, 2**20))
        if not piece:
            raise _DeathError(_ended(process.wait()))
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _rows_of(kind: bytes, payload: bytes) -> Iterator[dict[str, Any] | RowFault | Skipped | Begun]:
    if kind == _ROWS:
        reader = opened_arrow(pa.BufferReader(payload), "Parquet")
        for number in range(reader.num_record_batches):
            yield from _values(reader.get_batch(number))
        return
    part = _MESSAGES[kind](*json.loads(payload))
    if isinstance(part, FileFault | StageError):
        raise part
    yield part


def _values(batch: Any) -> Iterator[dict[str, Any] | RowFault]:
    try:
        yield from batch.to_pylist()
        return
    except Exception:
        pass  # one value among them: the rows are taken one by one
    for row in range(len(batch)):
        try:
            yield batch.slice(row, 1).to_pylist()[0]
        except UnicodeDecodeError:
            yield RowFault(Reason.ENCODING, "a text of the row is not UTF-8")
        except Exception as error:
            yield RowFault(Reason.BAD_VALUE, f"a value of the row cannot be read ({type(error).__name__})")


def serve_requests() -> None:
    """Serve requests until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    _bound_memory()
    for line in sys.stdin.buffer:
        for kind, payload in _served(json.loads(line)):
            answers.write(_HEAD.pack(kind, len(payload)) + payload)
            answers.flush()


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # only Linux says, and bounds, what a process has
        current = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (current + MEMORY_BYTES, current + MEMORY_BYTES))


def _served(request: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    root, location = Location(**request["root"]), Location(**request["location"])
    try:
        with PinnedFile(root, location, LogFile(**request["file"])) as file:
            for part in parquet_batches(file, request["start"], request["end"], request["columns"]):
                yield _answer(part)
    except (FileFault, StageError) as error:
        yield _answer(error)
    except MemoryError:
        detail = f"Parquet: takes more than {MEMORY_BYTES} bytes of memory"
        yield _answer(FileFault(Reason.FILE_UNREADABLE, detail))
    yield _END, b""


def _answer(part: Any) -> tuple[bytes, bytes]:
    for kind, part_type in _MESSAGES.items():
        if isinstance(part, part_type):
            values = [str(part)] if part_type is StageError else list(vars(part).values())
            return kind, json.dumps(values).encode()
    sink = pa.BufferOutputStream()
    write_arrow(sink, [part], part.schema)
    return _ROWS, sink.getvalue().to_pybytes()


if __name__ == "__main__":
    serve_requests()
