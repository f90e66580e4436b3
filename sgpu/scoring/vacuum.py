"""Removes what dead runs have left: files that no table knows, and work that nobody goes on with."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from sgpu.errors import IntegrityError, UsageError
from sgpu.scoring.tables import QUARANTINE, SCORES, VERDICTS
from sgpu.storage.delta_log import open_table, table_errors
from sgpu.storage.location import Location

# A run that is at work has files that no table knows yet; none takes longer than a day.
LEAST_HOURS = 24
KEPT = {"models", "locks"}  # in the folder of work; models are copied again if they are removed


@dataclass(frozen=True)
class Vacuumed:
    """How many ``files``, of tables and drafts, and ``folders`` of work were removed."""

    files: int
    folders: int


def vacuum_table(out: Location | str, older_than_hours: int = 168) -> Vacuumed:
    """Remove what has not been touched for so many hours, and with it the ability to travel back further.

    Raises UsageError for less than a day, IntegrityError for a link in a table's folder.
    """
    if older_than_hours < LEAST_HOURS:
        raise UsageError(
            f"--older-than {older_than_hours} is below {LEAST_HOURS} hours: a run at work would lose files"
        )
    location = Location.of(out)
    files = sum(
        _unknown_files(location / table.name, older_than_hours) for table in (SCORES, QUARANTINE, VERDICTS)
    )
    files += sum(
        _drafts(folder, older_than_hours) for folder in (location / "days", location / "work" / "models")
    )
    files += _drafts(location, older_than_hours, recursive=False)
    return Vacuumed(files, _dead_work(location / "work", older_than_hours))


def _drafts(folder: Location, hours: int, *, recursive: bool = True) -> int:
    """Files that were to take another's place; whoever wrote them died before."""
    oldest = _oldest(hours)
    dead = [
        file
        for file, info in folder.infos(recursive=recursive).items()
        if "/." in file.path.removeprefix(folder.path) and (info.mtime_ns or 0) < oldest
    ]
    for file in dead:
        file.delete()
    return len(dead)


def _oldest(hours: int) -> int:
    return time.time_ns() - hours * 3600 * 10**9


def _unknown_files(root: Location, hours: int) -> int:
    delta = open_table(root)
    if delta is None:
        return 0
    refuse_links(root)
    with table_errors(root):
        removed = delta.vacuum(
            retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
        )
    return len(removed)


def _dead_work(work: Location, hours: int) -> int:
    newest: dict[str, int] = {}
    for file, info in work.infos(recursive=True).items():
        name = file.path.removeprefix(f"{work.path}/").partition("/")[0]
        newest[name] = max(newest.get(name, 0), info.mtime_ns or 0)
    oldest = _oldest(hours)
    dead = [name for name, touched in newest.items() if name not in KEPT and touched < oldest]
    for name in dead:
        (work / name).delete()
    return len(dead)


def refuse_links(folder: Location) -> None:
    """Raise IntegrityError for a symbolic link beneath a local folder; object storage has none."""
    if not folder.is_local:
        return
    for parent, folders, files in os.walk(folder.local):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                raise IntegrityError(
                    f"{str(path)!a} is a link. Nothing was removed: what it leads to is not part of the "
                    "table. Remove the link and run this again."
                )
