"""The files of a day's logs, pinned before the first is read: path, size and version of each.

Beneath the root, folders named dt=YYYY-MM-DD or date=YYYY-MM-DD hold one day each, at any depth; only the
day's own are opened. Without such folders all files are taken, and the time of each row decides. Names that
start with "." or "_" are left out, as Spark and Hive do (temporary files, markers, table logs).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import PurePosixPath

from sgpu.errors import DataError
from sgpu.logs.listing import ROOT, Entry, list_folder
from sgpu.storage.location import Location

_DAY_FOLDER = re.compile(r"(?:dt|date)=(\d{4}-\d\d-\d\d)")


@dataclass(frozen=True)
class LogFile:
    """``path`` below the root of the logs, with "/". ``mtime_ns``: since 1970; ``etag``: object storage only.

    ``dated``: it lies in the folder of the day. ``inode``: of a local file, to tell one that has grown from
    one that was put in its place. ``refused``: why it must not be opened; None if it may.
    """

    path: str
    size: int
    mtime_ns: int
    etag: str | None = None
    dated: bool = False
    inode: int | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """``day``: ISO date. ``by_folder``: folders name the day. ``is_file``: the root is the one file."""

    files: tuple[LogFile, ...]
    by_folder: bool
    day: str
    is_file: bool = False

    @cached_property
    def sha256(self) -> str:
        """Of what was found: equal for equal paths, sizes and versions."""
        found = [[one.path, one.size, one.mtime_ns, one.etag, one.refused] for one in self.files]
        return hashlib.sha256(json.dumps([self.by_folder, found]).encode()).hexdigest()

    @property
    def n_bytes(self) -> int:
        return sum(one.size for one in self.files)

    def place_of(self, logs: Location, file: LogFile) -> tuple[Location, Location]:
        """Where a file is to be opened, and the root that it must not lead out of."""
        if not self.is_file:
            return logs / file.path, logs
        place = _real(logs)
        return place, place.parent


def take_snapshot(logs: Location, day: date) -> Snapshot:
    """The files of ``day`` in order of their paths. DataError where there is nothing at ``logs``."""
    if logs.is_file():
        place = _real(logs)
        entry = list_folder(place.parent, only=place.name)[0]
        return Snapshot((_log_file(entry, dated=False),), False, day.isoformat(), is_file=True)
    if logs.is_local and not logs.local.is_dir():
        raise DataError(f"{logs}: no such file or folder. Give the folder, or the file, that holds the logs.")
    walk = _Walk(logs, day.isoformat())
    files = tuple(sorted(walk.files(), key=lambda one: one.path))
    if not logs.is_local and not files and not walk.by_folder:
        raise DataError(f"{logs}: nothing has this prefix. Give the prefix that holds the logs.")
    return Snapshot(files, walk.by_folder, day.isoformat())


def day_of_folder(name: str) -> date | None:
    """The day that the name of a folder says; None where it says none."""
    found = _DAY_FOLDER.fullmatch(name)
    try:
        return None if found is None else date.fromisoformat(found[1])
    except ValueError:
        return None


class _Walk:
    """One pass over the folders, which leaves those of other days unopened."""

    def __init__(self, logs: Location, day: str) -> None:
        self._logs = logs
        self._day = day
        own = _DAY_FOLDER.fullmatch(logs.name)
        self._root_day = own[1] if own else None
        self.by_folder = own is not None

    def files(self) -> Iterator[LogFile]:
        if self._root_day in (None, self._day):
            yield from self._beneath(ROOT, dated=self._root_day is not None)

    def _beneath(self, folder: PurePosixPath, *, dated: bool) -> Iterator[LogFile]:
        for entry in list_folder(self._logs, folder):
            if entry.name.startswith((".", "_")):
                continue
            named = _DAY_FOLDER.fullmatch(entry.name) if entry.is_folder or entry.refused else None
            self.by_folder |= named is not None
            if named and named[1] != self._day:
                continue
            if not entry.is_folder:
                yield _log_file(entry, dated=dated)
            elif named or not entry.is_link:
                # What a link within the root shows is listed where it lies; only the day's own is followed.
                yield from self._beneath(folder / entry.name, dated=dated or named is not None)


def _real(file: Location) -> Location:
    """A file that the user named may be a link to anywhere."""
    return Location.of(file.local.resolve()) if file.is_local else file


def _log_file(entry: Entry, *, dated: bool) -> LogFile:
    return LogFile(
        entry.path, entry.size, entry.mtime_ns, entry.etag, dated, entry.inode, refused=entry.refused
    )
