"""Links in a table's folder: delta-rs goes through them when it removes old files, even out of it."""

from __future__ import annotations

import os
from pathlib import Path

from sgpu.errors import IntegrityError
from sgpu.storage.location import Location


def refuse_links(folder: Location) -> None:
    """Raise IntegrityError for a symbolic link beneath a local folder; object storage has none."""
    if not folder.is_local:
        return
    for place, folders, files in os.walk(folder.local):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                raise IntegrityError(
                    f"{str(path)!a} is a link. Nothing was removed: what it leads to is not part of the "
                    "table. Remove the link and run this again."
                )
