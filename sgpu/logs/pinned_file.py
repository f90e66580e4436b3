"""A log file, opened as the snapshot saw it: not another one, and not one byte more; and its lines."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sgpu.errors import StageError
from sgpu.logs.records import LogFault, Reason
from sgpu.logs.snapshot import LogFile, etag_of, leaves, tag_in
from sgpu.storage.json_lines import BROKEN, CHUNK, FileKind, RawLine, lines_in, unpacked
from sgpu.storage.location import Location, explain_storage_error

LOCAL_BUFFER, REMOTE_BUFFER = 2**20, 8 * 2**20
_PEEK = 2**16
# An object whose first key stands in the next line, or an array whose first record does, indented, open or
# followed by a comma: a line of JSON Lines that is broken may be a bracket too, and costs no other row.
_PRETTY = re.compile(
    rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:\{[ \t]*\r?\n[ \t]*\""
    rb"|\[[ \t]*\r?\n(?:[ \t]+[\"{\[]|[{\[][ \t]*\r?\n|\{[^\n]*\},[ \t]*\r?\n))"
)
# How JSON Lines and arrays of records begin; gzip, Zstandard and Parquet.
_LOGS = re.compile(
    rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:\{[ \t\r\n]*[\"}]|\[[ \t\r\n]*\{)|\x1f\x8b|\x28\xb5\x2f\xfd|PAR1"
)


class FileFault(LogFault):
    """What is wrong with a file as a whole, or with the rest of it."""


class PinnedFile(io.RawIOBase):
    """Reads the first ``size`` bytes that the snapshot pinned, whatever was added behind them.

    Raises FileFault on opening: FILE_MISSING, FILE_UNREADABLE, FILE_CHANGED (replaced, rewritten or cut),
    UNSAFE_PATH. Raises StageError where object storage fails: that is no fault of the file, and the run is to
    be tried again.
    """

    def __init__(self, root: Location, location: Location, file: LogFile) -> None:
        super().__init__()
        self._location = location
        self._file = file
        self._position = 0
        try:
            self._stream: Any = self._opened(root)
        except FileNotFoundError:
            raise FileFault(Reason.FILE_MISSING, "it was removed after it was listed") from None
        except OSError as error:
            raise FileFault(Reason.FILE_UNREADABLE, f"cannot be opened: {_system_text(error)}") from error
        self.buffer_bytes = LOCAL_BUFFER if location.is_local else REMOTE_BUFFER

    def _opened(self, root: Location) -> Any:
        if self._file.refused:
            raise FileFault(Reason.UNSAFE_PATH, self._file.refused)
        if self._location.is_local:
            stream = _open_local(self._location.local, root.local)
            self._check(os.fstat(stream.fileno()))
            return stream
        with self._location.errors():
            stream = self._location.filesystem.open_input_file(self._location.path)
        changed = stream.size() != self._file.size or tag_in(stream.metadata()) != self._file.etag
        if not changed and self._file.etag is None:  # storage without tags tells by the time
            changed = self._location.info().mtime_ns != self._file.mtime_ns
        if changed:
            raise FileFault(Reason.FILE_CHANGED, f"another object of {stream.size()} bytes is in its place")
        return stream

    def _check(self, current: os.stat_result) -> None:
        pinned = self._file
        if current.st_size < pinned.size:
            raise FileFault(Reason.FILE_CHANGED, f"{current.st_size} bytes, {pinned.size} when it was listed")
        if current.st_size > pinned.size and current.st_ino != pinned.inode:
            raise FileFault(Reason.FILE_CHANGED, "another file is in its place")
        if current.st_size == pinned.size and current.st_mtime_ns != pinned.mtime_ns:
            raise FileFault(Reason.FILE_CHANGED, "it was written again after it was listed")

    def check_unchanged(self) -> None:
        """Look again after reading. Raises FileFault if the file was changed meanwhile, but for growth."""
        if self._location.is_local:
            self._check(os.fstat(self._stream.fileno()))
        elif etag_of(self._location) not in (self._file.etag, None):
            raise FileFault(Reason.FILE_CHANGED, "the object was replaced while it was read")

    @property
    def grew(self) -> bool:
        """Whether bytes were added since the snapshot, so that its last line may be unfinished."""
        return self._location.is_local and os.fstat(self._stream.fileno()).st_size > self._file.size

    @property
    def size(self) -> int:
        return self._file.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = min(max(base + offset, 0), self._file.size)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        wanted = min(len(buffer), self._file.size - self._position)
        if wanted <= 0:
            return 0
        try:
            self._stream.seek(self._position)
            payload = self._stream.read(wanted)
        except OSError as error:
            if self._location.is_local:
                raise
            # Not an OSError: a reader above would take that for a broken file.
            location = self._location
            raise StageError(explain_storage_error(location.scheme, location.path, str(error))) from error
        if not payload:
            raise FileFault(Reason.FILE_CHANGED, "it was cut while it was read")
        buffer[: len(payload)] = payload
        self._position += len(payload)
        return len(payload)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_stream"):
            self._stream.close()
        super().close()


def _open_local(path: Path, root: Path) -> Any:
    if leaves(path, root):
        raise FileFault(Reason.UNSAFE_PATH, "a link that leads out of the logs")
    # A pipe would wait for its writer; with this flag opening it returns at once.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileFault(Reason.UNSAFE_PATH, "not a plain file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _system_text(error: OSError) -> str:
    """The system's words without the path, which stands in a column of its own."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def is_pretty(file: PinnedFile, kind: FileKind) -> bool:
    """Whether the file is JSON over many lines: it starts with a bracket alone, and then an inner line."""
    buffered: io.BufferedReader[Any] = io.BufferedReader(file, file.buffer_bytes)
    try:
        start = unpacked(buffered, kind).read(_PEEK)
    except BROKEN:
        return False  # `lines_of` finds what can be read, and says what is wrong
    finally:
        buffered.detach()
        file.seek(0)
    return _PRETTY.match(start) is not None


def may_be_logs(file: PinnedFile) -> bool:
    """Return whether a file begins as logs do, whatever its name says."""
    return _LOGS.match(file.read(_PEEK)) is not None


def lines_of(
    file: PinnedFile, kind: FileKind, start: int, end: int, passed: Callable[[int], None] = lambda size: None
) -> Iterator[RawLine]:
    """The lines that start in bytes ``start`` to ``end``; of a compressed file all.

    ``passed`` is told how many bytes were unpacked, and may raise to end it.

    Raises FileFault where the content ends or breaks too early, after all lines before that place.
    """
    buffered: io.BufferedReader[Any] = io.BufferedReader(file, file.buffer_bytes)
    try:
        if kind is FileKind.LINES:
            yield from lines_in(buffered, _first_line(buffered, start, end), end, passed)
        else:
            yield from lines_in(unpacked(buffered, kind), passed=passed)
    except BROKEN as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = Reason.FILE_TRUNCATED if cut else Reason.FILE_UNREADABLE
        raise FileFault(reason, f"{kind.value}: cut short or broken ({type(error).__name__})") from error
    finally:
        buffered.detach()  # it would close the file when it goes


def _first_line(stream: io.BufferedReader[Any], start: int, end: int) -> int:
    """Go to the first line that starts at ``start`` or later; its place, or any from ``end`` on."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    # A line without end would otherwise be read to the end of the file for each of its ranges.
    while stream.tell() < end and (piece := stream.readline(CHUNK)):
        if piece.endswith(b"\n"):
            break
    return stream.tell()
