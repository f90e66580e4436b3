"""Files and folders of this machine, written whole or not at all: readers never see a part of one.

All of it is written under a new name beside the place, and renamed. The name is new for every writer, threads
of one process included, so that writers of the same place do not disturb each other: the last one stands.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, payload: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    with draft_of_file(path) as draft:
        draft.write_bytes(payload)


@contextmanager
def draft_of_file(path: Path) -> Iterator[Path]:
    """A name to write ``path`` under; it takes the file's place when the block ends without an error."""
    draft = _beside(path)
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def draft_of_folder(folder: Path) -> Iterator[Path]:
    """A new folder beside ``folder``, to be moved by `replace_folder` or `keep_first`; removed at the end."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(folder)
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_folder(draft: Path, folder: Path) -> None:
    """Move ``draft`` to ``folder``; what was there is removed once it is."""
    with draft_of_folder(folder) as old:
        if folder.is_dir():
            folder.rename(old / "replaced")
        draft.rename(folder)


def keep_first(draft: Path, folder: Path, holds: str = "") -> None:
    """Move ``draft`` to ``folder``, unless another writer was first with equal content.

    A folder is complete if it has the file ``holds``. Raises OSError where neither stands there.
    """
    try:
        draft.rename(folder)
    except OSError:
        if not (folder / holds).exists():
            raise


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
