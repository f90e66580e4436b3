"""Where a fitted model goes: a place that is free, or holds a model and nothing else."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sgpu.errors import UsageError
from sgpu.scoring.models.registered_models import MEASURES
from sgpu.storage.bundle_files import BUNDLE
from sgpu.storage.location import Location
from sgpu.storage.whole import draft_of_folder, replace_folder

METRICS = MEASURES
_OF_A_MODEL = re.compile(
    r"(bundle|metrics|profile)\.json|profile\.safetensors|(size_free/|heads/\d+/)?gp\.(json|safetensors)"
)


def free(place: Location) -> Location:
    """``place`` if it is empty or holds a model alone; UsageError otherwise: nothing else is replaced."""
    if _is_something_else(place):
        raise UsageError(f"{place} is no folder; give a new one")
    files = _files(place)
    foreign = sorted(name for name in files if not _OF_A_MODEL.fullmatch(name))
    if BUNDLE not in files and (files or _has_entries(place)):
        raise UsageError(f"{place} holds files or folders, but no fitted model to replace; give a new folder")
    if foreign:
        raise UsageError(
            f"{place} holds a fitted model and {len(foreign)} other files, the first "
            f"{ascii(foreign[0])[:80]}, which would be lost with it; move them away, or give a new folder"
        )
    return place


def publish(bundle: Path, place: Location) -> None:
    """Make the model appear whole; in object storage, where nothing is renamed, with its description last."""
    free(place)  # fitting takes time, in which somebody may have put files there
    if not place.is_local:
        # One by one, the description first: a prefix may be a bucket, and what comes meanwhile is not ours.
        for name in sorted(_files(place), key=lambda name: (name != BUNDLE, name)):
            if _OF_A_MODEL.fullmatch(name):
                (place / name).delete()
        place.upload(bundle, last=BUNDLE)
        return
    with draft_of_folder(place.local) as draft:
        for path in sorted(bundle.rglob("*")):
            if path.is_file():
                target = draft / path.relative_to(bundle)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        replace_folder(draft, place.local)


def _is_something_else(place: Location) -> bool:
    """A file, or a link to nothing."""
    if place.is_local:
        return os.path.lexists(place.local) and not place.local.is_dir()
    return place.is_file()


def _files(place: Location) -> set[str]:
    """Relative names of all that is no folder, at any depth; links are not followed."""
    if not place.is_local:
        return {file.path.removeprefix(f"{place.path}/") for file in place.files(recursive=True)}
    found = (path for path in place.local.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(place.local).as_posix() for path in found}


def _has_entries(place: Location) -> bool:
    """Whether there are folders, if only empty ones. Object storage has no folders of its own."""
    return place.is_local and place.local.is_dir() and any(place.local.iterdir())
