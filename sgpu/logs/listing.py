"""What a folder of logs holds, and which of it must not be opened.

Refused are links that lead out of the root, links to nothing, pipes, sockets and devices (a pipe would be
read for ever), and names that are no path below the root: "..", or bytes that are not UTF-8.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.fs as pa_fs

from sgpu.errors import DataError
from sgpu.storage.location import Location

ROOT = PurePosixPath()


@dataclass(frozen=True, slots=True)
class Entry:
    """``path`` below the root. ``is_link``: a symbolic link that stays within the root."""

    name: str
    path: str
    is_folder: bool
    size: int = 0
    mtime_ns: int = 0
    etag: str | None = None
    inode: int | None = None
    is_link: bool = False
    refused: str | None = None


def list_folder(logs: Location, folder: PurePosixPath = ROOT, only: str | None = None) -> list[Entry]:
    """The entries of ``folder`` (below ``logs``) in order of their names; ``only`` the one of that name."""
    if logs.is_local:
        names = [only] if only else _names(logs.local / folder)
        return [_local(logs.local, folder, name) for name in names]
    place = logs if folder == ROOT else logs / folder
    if only:
        return [_remote(logs, (place / only).info(), folder)]
    selector = pa_fs.FileSelector(place.path, allow_not_found=True)
    with logs.errors():
        found = place.filesystem.get_file_info(selector)
    return [_remote(logs, one, folder) for one in sorted(found, key=lambda one: one.path)]


def _names(place: Path) -> list[str]:
    try:
        return sorted(os.listdir(place))  # noqa: PTH208 - a path cannot show what bytes a name has
    except FileNotFoundError:
        return []  # the folder went while its parent was read
    except OSError as error:
        told = os.strerror(error.errno or 0)
        raise DataError(f"{place}: the folder of logs cannot be listed: {told}. Allow reading it.") from error


def leaves(path: Path, root: Path) -> bool:
    """Whether a path, its links followed, ends outside of the root."""
    return not path.resolve().is_relative_to(root.resolve())


def _local(root: Path, folder: PurePosixPath, name: str) -> Entry:
    shown = str(folder / os.fsencode(name).decode("utf-8", "backslashreplace"))
    if name.encode("utf-8", "replace").decode() != name:
        return Entry(name, shown, is_folder=False, refused="the name is not UTF-8")
    path = root / folder / name
    try:
        if path.is_symlink() and leaves(path, root):
            return Entry(name, shown, is_folder=False, refused="a link that leads out of the logs")
        found = path.stat()
    except (OSError, RuntimeError) as error:
        # It may have been removed since its name was read: opening it will tell. A link is broken, or a ring.
        broken = "a link that leads nowhere" if path.is_symlink() else None
        known = broken or ("cannot be looked at" if not isinstance(error, FileNotFoundError) else None)
        return Entry(name, shown, is_folder=False, refused=known)
    kind = stat.S_IFMT(found.st_mode)
    refused = None if kind in (stat.S_IFREG, stat.S_IFDIR) else "not a plain file"
    return Entry(
        name,
        shown,
        is_folder=kind == stat.S_IFDIR,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        inode=found.st_ino,
        is_link=path.is_symlink(),
        refused=refused,
    )


def _remote(logs: Location, info: Any, folder: PurePosixPath) -> Entry:
    name = PurePosixPath(info.path).name
    path = str(folder / name)
    if info.type == pa_fs.FileType.Directory:
        return Entry(name, path, is_folder=True)
    unsafe = {"", ".", ".."} & set(info.path.split("/"))
    refused = "the key is no plain path" if unsafe else None
    etag = None if refused else etag_of(Location(logs.scheme, info.path))
    return Entry(name, path, False, info.size or 0, info.mtime_ns or 0, etag, refused=refused)


def etag_of(place: Location) -> str | None:
    """The version tag of an object; None where the storage gives none, or the object is gone."""
    try:
        with place.errors(), place.filesystem.open_input_file(place.path) as stream:
            return tag_in(stream.metadata())
    except FileNotFoundError:
        return None


def tag_in(metadata: Any) -> str | None:
    """The ETag among an object's metadata."""
    found = {_text(key).lower(): _text(value) for key, value in (metadata or {}).items()}
    return found.get("etag")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
