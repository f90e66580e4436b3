"""A log file, opened as the snapshot saw it: not another one, and not one byte more."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import Any

from sgpu.errors import StageError
from sgpu.logs.listing import etag_of, leaves, tag_in
from sgpu.logs.records import Reason
from sgpu.logs.snapshot import LogFile
from sgpu.storage.errors import explained
from sgpu.storage.location import Location

LOCAL_BUFFER, REMOTE_BUFFER = 2**20, 8 * 2**20


class FileFault(Exception):
    """What is wrong with a file as a whole, or with the rest of it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class PinnedFile(io.RawIOBase):
    """Reads the first ``size`` bytes that the snapshot pinned, whatever was added behind them.

    Raises FileFault on opening: FILE_MISSING, FILE_UNREADABLE, FILE_CHANGED (replaced, rewritten or cut),
    UNSAFE_PATH. Raises StageError where object storage fails: that is no fault of the file, and the run is to
    be tried again.
    """

    def __init__(self, root: Location, place: Location, file: LogFile) -> None:
        super().__init__()
        self._place = place
        self._file = file
        self._position = 0
        try:
            self._stream: Any = self._opened(root)
        except FileNotFoundError:
            raise FileFault(Reason.FILE_MISSING, "it was removed after it was listed") from None
        except OSError as error:
            raise FileFault(Reason.FILE_UNREADABLE, f"cannot be opened: {_told(error)}") from error
        self.buffer_bytes = LOCAL_BUFFER if place.is_local else REMOTE_BUFFER

    def _opened(self, root: Location) -> Any:
        if self._file.refused:
            raise FileFault(Reason.UNSAFE_PATH, self._file.refused)
        if self._place.is_local:
            stream = _open_local(self._place.local, root.local)
            self._check(os.fstat(stream.fileno()))
            return stream
        with self._place.errors():
            stream = self._place.filesystem.open_input_file(self._place.path)
        changed = stream.size() != self._file.size or tag_in(stream.metadata()) != self._file.etag
        if not changed and self._file.etag is None:  # storage without tags tells by the time
            changed = self._place.info().mtime_ns != self._file.mtime_ns
        if changed:
            raise FileFault(Reason.FILE_CHANGED, f"another object of {stream.size()} bytes is in its place")
        return stream

    def _check(self, found: os.stat_result) -> None:
        pinned = self._file
        if found.st_size < pinned.size:
            raise FileFault(Reason.FILE_CHANGED, f"{found.st_size} bytes, {pinned.size} when it was listed")
        if found.st_size > pinned.size and found.st_ino != pinned.inode:
            raise FileFault(Reason.FILE_CHANGED, "another file is in its place")
        if found.st_size == pinned.size and found.st_mtime_ns != pinned.mtime_ns:
            raise FileFault(Reason.FILE_CHANGED, "it was written again after it was listed")

    def check_unchanged(self) -> None:
        """Look again after reading. Raises FileFault if the file was changed meanwhile, but for growth."""
        if self._place.is_local:
            self._check(os.fstat(self._stream.fileno()))
        elif etag_of(self._place) not in (self._file.etag, None):
            raise FileFault(Reason.FILE_CHANGED, "the object was replaced while it was read")

    @property
    def grew(self) -> bool:
        """Whether bytes were added since the snapshot, so that its last line may be unfinished."""
        return self._place.is_local and os.fstat(self._stream.fileno()).st_size > self._file.size

    @property
    def size(self) -> int:
        return self._file.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

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
            if self._place.is_local:
                raise
            # Not an OSError: a reader above would take that for a broken file.
            place = self._place
            raise StageError(explained(place.scheme, place.path, str(error))) from error
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


def _told(error: OSError) -> str:
    """The system's words without the path, which stands in a column of its own."""
    return os.strerror(error.errno) if error.errno else type(error).__name__
