"""The files of a day's logs, pinned before the first is read: path, size and version of each.

Beneath the root, folders named dt=YYYY-MM-DD or date=YYYY-MM-DD hold one day each, at any depth; only the
day's own are opened. Without such folders all files are taken, and the time of each row decides. Names that
start with "." or "_" are left out, as Spark and Hive do (temporary files, markers, table logs).

Refused are links that lead out of the root, links to nothing, pipes, sockets and devices (a pipe would be
read for ever), and names that are no path below the root: "..", or bytes that are not UTF-8.

They are read in splits: ranges of bytes where a format allows, else whole files.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.fs as pa_fs

from sgpu.errors import DataError
from sgpu.hashing import sha256_hex
from sgpu.storage.json_lines import FileKind, kind_of
from sgpu.storage.location import Location

ROOT = PurePosixPath()
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


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """``file``: where it stands and what it is as a file. ``is_link``: one that stays within the root."""

    name: str
    file: LogFile
    is_folder: bool = False
    is_link: bool = False


def list_folder(logs: Location, folder: PurePosixPath = ROOT, only: str | None = None) -> list[FolderEntry]:
    """The entries of ``folder`` (below ``logs``) in order of their names; ``only`` the one of that name."""
    if logs.is_local:
        names = [only] if only else _names(logs.local / folder)
        return [_local(logs.local, folder, name) for name in names]
    location = logs if folder == ROOT else logs / folder
    if only:
        return [_remote(logs, (location / only).info(), folder)]
    selector = pa_fs.FileSelector(location.path, allow_not_found=True)
    with logs.errors():
        infos = location.filesystem.get_file_info(selector)
    return [_remote(logs, info, folder) for info in sorted(infos, key=lambda info: info.path)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - a path cannot show what bytes a name has
    except FileNotFoundError:
        return []  # the folder went while its parent was read
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise DataError(f"{folder}: the folder of logs cannot be listed: {why}. Allow reading it.") from error


def leaves(path: Path, root: Path) -> bool:
    """Whether a path, its links followed, ends outside of the root."""
    return not path.resolve().is_relative_to(root.resolve())


def _local(root: Path, folder: PurePosixPath, name: str) -> FolderEntry:
    shown = str(folder / os.fsencode(name).decode("utf-8", "backslashreplace"))
    if name.encode("utf-8", "replace").decode() != name:
        return FolderEntry(name, LogFile(shown, 0, 0, refused="the name is not UTF-8"))
    path = root / folder / name
    try:
        if path.is_symlink() and leaves(path, root):
            return FolderEntry(name, LogFile(shown, 0, 0, refused="a link that leads out of the logs"))
        status = path.stat()
    except (OSError, RuntimeError) as error:
        # It may have been removed since its name was read: opening it will tell. A link is broken, or a ring.
        broken = "a link that leads nowhere" if path.is_symlink() else None
        reason = broken or ("cannot be looked at" if not isinstance(error, FileNotFoundError) else None)
        return FolderEntry(name, LogFile(shown, 0, 0, refused=reason))
    kind = stat.S_IFMT(status.st_mode)
    refused = None if kind in (stat.S_IFREG, stat.S_IFDIR) else "not a plain file"
    file = LogFile(shown, status.st_size, status.st_mtime_ns, inode=status.st_ino, refused=refused)
    return FolderEntry(name, file, kind == stat.S_IFDIR, path.is_symlink())


def _remote(logs: Location, info: Any, folder: PurePosixPath) -> FolderEntry:
    name = PurePosixPath(info.path).name
    path = str(folder / name)
    if info.type == pa_fs.FileType.Directory:
        return FolderEntry(name, LogFile(path, 0, 0), is_folder=True)
    unsafe = {"", ".", ".."} & set(info.path.split("/"))
    refused = "the key is no plain path" if unsafe else None
    etag = None if refused else etag_of(Location(logs.scheme, info.path))
    return FolderEntry(name, LogFile(path, info.size or 0, info.mtime_ns or 0, etag, refused=refused))


def etag_of(location: Location) -> str | None:
    """The version tag of an object; None where the storage gives none, or the object is gone."""
    try:
        with location.errors(), location.filesystem.open_input_file(location.path) as stream:
            return tag_in(stream.metadata())
    except FileNotFoundError:
        return None


def tag_in(metadata: Any) -> str | None:
    """The ETag among an object's metadata."""
    headers = {_text(key).lower(): _text(value) for key, value in (metadata or {}).items()}
    return headers.get("etag")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


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
        versions = [[file.path, file.size, file.mtime_ns, file.etag, file.refused] for file in self.files]
        return sha256_hex(json.dumps([self.by_folder, versions]))

    @property
    def n_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def location_of(self, logs: Location, file: LogFile) -> tuple[Location, Location]:
        """Where a file is to be opened, and the root that it must not lead out of."""
        if not self.is_file:
            return logs / file.path, logs
        location = _real(logs)
        return location, location.parent


def take_snapshot(logs: Location, day: date) -> Snapshot:
    """The files of ``day`` in order of their paths. DataError where there is nothing at ``logs``."""
    if logs.is_file():
        location = _real(logs)
        entry = list_folder(location.parent, only=location.name)[0]
        return Snapshot((entry.file,), False, day.isoformat(), is_file=True)
    if logs.is_local and not logs.local.is_dir():
        raise DataError(f"{logs}: no such file or folder. Give the folder, or the file, that holds the logs.")
    match = _DAY_FOLDER.fullmatch(logs.name)
    days = {match[1]} if match else set[str]()
    files: list[LogFile] = []
    if not match or match[1] == day.isoformat():
        files = sorted(_files(logs, ROOT, day.isoformat(), days, dated=bool(match)), key=lambda f: f.path)
    if not logs.is_local and not files and not days:
        raise DataError(f"{logs}: nothing has this prefix. Give the prefix that holds the logs.")
    return Snapshot(tuple(files), bool(days), day.isoformat())


def day_of_folder(name: str) -> date | None:
    """The day that the name of a folder says; None where it says none."""
    match = _DAY_FOLDER.fullmatch(name)
    try:
        return None if match is None else date.fromisoformat(match[1])
    except ValueError:
        return None


def _files(
    logs: Location, folder: PurePosixPath, day: str, days: set[str], *, dated: bool
) -> Iterator[LogFile]:
    """The files beneath ``folder``, without those of other days; ``days`` gets those that folders name."""
    for entry in list_folder(logs, folder):
        if entry.name.startswith((".", "_")):
            continue
        named = _DAY_FOLDER.fullmatch(entry.name) if entry.is_folder or entry.file.refused else None
        if named:
            days.add(named[1])
            if named[1] != day:
                continue
        if not entry.is_folder:
            yield replace(entry.file, dated=dated)
        elif named or not entry.is_link:
            # What a link within the root shows is listed where it lies; only the day's own is followed.
            yield from _files(logs, folder / entry.name, day, days, dated=dated or named is not None)


def _real(file: Location) -> Location:
    """A file that the user named may be a link to anywhere."""
    return Location.of(file.local.resolve()) if file.is_local else file


@dataclass(frozen=True)
class Split:
    """Bytes ``start`` to ``end`` of a file of the snapshot; what starts in the range belongs to it.

    In plain JSON Lines that is each line, in Parquet each row group; a compressed file is one split.
    """

    number: int
    file: int
    start: int
    end: int


def splits_of(snapshot: Snapshot, split_bytes: int) -> list[Split]:
    """All files in the order of the snapshot, each in ranges of ``split_bytes``; one at least per file."""
    splits: list[Split] = []
    for index, file in enumerate(snapshot.files):
        kind = kind_of(file.path)
        whole = file.refused or kind not in (FileKind.LINES, FileKind.PARQUET)
        step = max(file.size, 1) if whole else split_bytes
        for start in range(0, max(file.size, 1), step):
            splits.append(Split(len(splits), index, start, min(start + step, file.size)))
    return splits
