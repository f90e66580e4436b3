"""Lines of a stream of bytes, one at a time and never longer than a bound."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from sgpu.logs.kinds import Kind
from sgpu.logs.pinned_file import FileFault, PinnedFile
from sgpu.logs.records import Reason

MAX_LINE_BYTES = 16 * 2**20  # JSON of small values takes thirty times as much as Python objects
_CHUNK = 2**20
_Stream: TypeAlias = "io.BufferedReader[Any] | gzip.GzipFile"
# What gzip and pyarrow raise for broken content.
_PEEK = 2**16
# An object whose first key stands in the next line, or an array whose first record does, indented, open or
# followed by a comma: a line of JSON Lines that is broken may be a bracket too, and costs no other row.
_PRETTY = re.compile(
    rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:\{[ \t]*\r?\n[ \t]*\""
    rb"|\[[ \t]*\r?\n(?:[ \t]+[\"{\[]|[{\[][ \t]*\r?\n|\{[^\n]*\},[ \t]*\r?\n))"
)
BROKEN = (OSError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Line:
    """``raw`` without its line feed; None if it is longer than the bound. ``ended``: it had a line feed."""

    raw: bytes | None
    ended: bool


def is_pretty(file: PinnedFile, kind: Kind) -> bool:
    """Whether the file is JSON over many lines: it starts with a bracket alone, and then an inner line."""
    buffered: io.BufferedReader[Any] = io.BufferedReader(file, file.buffer_bytes)
    try:
        start = _unpacked(buffered, kind).read(_PEEK)
    except BROKEN:
        return False  # `lines_of` finds what can be read, and says what is wrong
    finally:
        buffered.detach()
        file.seek(0)
    return _PRETTY.match(start) is not None


def lines_of(
    file: PinnedFile, kind: Kind, start: int, end: int, passed: Callable[[int], None] = lambda size: None
) -> Iterator[Line]:
    """The lines that start in bytes ``start`` to ``end``; of a compressed file all.

    ``passed`` is told how many bytes were unpacked, and may raise to end it.

    Raises FileFault where the content ends or breaks too early, after all lines before that place.
    """
    buffered: io.BufferedReader[Any] = io.BufferedReader(file, file.buffer_bytes)
    try:
        if kind is Kind.LINES:
            yield from _lines(buffered, _first_line(buffered, start, end), end, passed)
        else:
            yield from _lines(_unpacked(buffered, kind), 0, None, passed)
    except BROKEN as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = Reason.FILE_TRUNCATED if cut else Reason.FILE_UNREADABLE
        raise FileFault(reason, f"{kind.value}: cut short or broken ({type(error).__name__})") from error
    finally:
        buffered.detach()  # it would close the file when it goes


def _unpacked(stream: io.BufferedReader[Any], kind: Kind) -> _Stream:
    if kind is Kind.GZIP:
        return gzip.GzipFile(fileobj=stream)
    return io.BufferedReader(_Zstandard(stream), _CHUNK) if kind is Kind.ZSTD else stream


def _first_line(stream: io.BufferedReader[Any], start: int, end: int) -> int:
    """Go to the first line that starts at ``start`` or later; its place, or any from ``end`` on."""
    if start == 0:
        return 0
    stream.seek(start - 1)
    # A line without end would otherwise be read to the end of the file for each of its ranges.
    while stream.tell() < end and (piece := stream.readline(_CHUNK)):
        if piece.endswith(b"\n"):
            break
    return stream.tell()


def _skip_line(stream: _Stream, passed: Callable[[int], None]) -> bool:
    while piece := stream.readline(_CHUNK):
        passed(len(piece))
        if piece.endswith(b"\n"):
            return True
    return False


def _lines(stream: _Stream, position: int, end: int | None, passed: Callable[[int], None]) -> Iterator[Line]:
    while end is None or position < end:
        raw = stream.readline(MAX_LINE_BYTES + 1)
        if not raw:
            return
        passed(len(raw))
        ended = raw.endswith(b"\n")
        if len(raw) > MAX_LINE_BYTES and not ended:
            ended = _skip_line(stream, passed)
            yield Line(None, ended)
            position = stream.tell() if end is not None else 0
            continue
        position += len(raw)
        yield Line(raw[:-1] if ended else raw, ended)


class _Zstandard(io.RawIOBase):
    """pyarrow's Zstandard stream, which throws away what it had decoded of a block that then breaks.

    After an error the stream is read anew up to that place, and from there byte by byte, so that the rows
    before the cut are kept.
    """

    def __init__(self, source: io.BufferedReader[Any]) -> None:
        super().__init__()
        self._source = source
        self._done = 0
        self._careful = False
        self._stream = self._open()

    def _open(self) -> Any:
        self._source.seek(0)
        return pa.CompressedInputStream(pa.PythonFile(_Borrowed(self._source), mode="r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self._careful:
            return self._take(buffer, 1)
        try:
            return self._take(buffer, len(buffer))
        except BROKEN:
            self._careful = True
            self._stream = self._open()
            left = self._done
            while left:
                piece = len(self._stream.read(min(left, _CHUNK)))
                if not piece:
                    raise
                left -= piece
            return self._take(buffer, 1)

    def _take(self, buffer: Any, wanted: int) -> int:
        payload = self._stream.read(wanted)
        buffer[: len(payload)] = payload
        self._done += len(payload)
        return len(payload)


class _Borrowed(io.RawIOBase):
    """A stream that belongs to somebody else: what reads it may not close it."""

    def __init__(self, source: io.BufferedReader[Any]) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._source.readinto(buffer)
