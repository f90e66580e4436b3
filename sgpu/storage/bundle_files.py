"""The files of a fitted model as a folder: which kinds may be there, their hash, copies, a place for it.

A model comes from somebody else's storage, so names are checked before a file is written, and nothing but
safetensors and JSON is copied: no other format is read, and these two cannot run code. A place for a new one
is free, or holds a model and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from sgpu.errors import DataError, IntegrityError, UsageError
from sgpu.hashing import sha256_of_file
from sgpu.storage.location import Location
from sgpu.storage.whole import draft_of_folder, replace_folder

BUNDLE = "bundle.json"
BUNDLE_FORMAT = 1
MEASURES = "metrics.json"  # what `sgpu fit` measured, among the files of the model
SAFE_SUFFIXES = {".json", ".safetensors"}
# A classifier of 256 inducing points takes half a megabyte; this only keeps a wrong address off the disk.
MOST_BYTES = 2**30
MOST_FILES = 1000


def bundle_sha256(bundle: Path) -> str:
    """sha256 over the names and contents of a bundle's files; IntegrityError for a kind we do not load."""
    files = sorted(local_files(bundle).items())
    if not files:
        raise IntegrityError(f"{bundle} holds no files; give the folder that a fit was saved to")
    total = hashlib.sha256()
    for name, path in files:
        total.update(f"{name}\0".encode() + bytes.fromhex(sha256_of_file(path)))
    return total.hexdigest()


def local_files(folder: Path) -> dict[str, Path]:
    """The files beneath a folder by their relative names.

    Raises IntegrityError for a symbolic link or anything else that is no plain file, and as `checked_name`.
    """
    paths = {}
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(parent, name)
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise IntegrityError(
                    f"{path} is a symbolic link or no plain file; a model holds files alone. Remove it, or "
                    "copy what it points to."
                )
        for name in files:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            paths[checked_name(relative, str(folder))] = path
    return paths


def checked_name(name: str, where: str) -> str:
    """``name`` if it is the relative path of a file that a model may hold; IntegrityError otherwise."""
    path = PurePosixPath(name)
    escapes = path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable()
    if escapes or str(path) != name or not path.parts:
        raise IntegrityError(
            f"{where} names the file {ascii(name)[:60]}, which does not stay in its folder. Do not use it."
        )
    if path.suffix not in SAFE_SUFFIXES:
        raise IntegrityError(
            f"{where}: {name} is neither safetensors nor JSON; a fitted model holds nothing else, "
            "because other formats can run code when they are loaded"
        )
    return name


def bundle_names(names: Mapping[str, int], uri: str) -> tuple[str, list[str]]:
    """The folder of the one bundle among ``names`` (path: bytes), and the files in it, relative to it.

    What stands outside of that folder (MLflow keeps code beside a model) is not looked at. Raises DataError
    unless there is one bundle, IntegrityError for a file in it that no model holds, or too much of them.
    """
    bundles = sorted(name for name in names if PurePosixPath(name).name == BUNDLE)
    if len(bundles) != 1:
        raise DataError(
            f"{uri} holds {len(bundles)} fitted models ({BUNDLE}); exactly one is needed. "
            "Give the folder that `sgpu fit` wrote, or the registered model."
        )
    folder = bundles[0].removesuffix(BUNDLE)
    inside = sorted(name.removeprefix(folder) for name in names if name.startswith(folder))
    total = sum(names[folder + name] for name in inside)
    if len(inside) > MOST_FILES or total > MOST_BYTES:
        raise IntegrityError(
            f"{uri} has {len(inside)} files of {total} bytes together; a fitted model has at most "
            f"{MOST_FILES} and {MOST_BYTES}. Check the address."
        )
    return folder, [checked_name(name, uri) for name in inside]


def bundle_beneath(root: Path, uri: str) -> Path:
    """Return the folder of the one bundle at or beneath a folder of this machine.

    Raises DataError if there is no such folder, and as `bundle_names`.
    """
    if not root.is_dir():
        raise DataError(
            f"there is no folder {uri}; give the folder that `sgpu fit` wrote, or models:/NAME@ALIAS for a "
            "registered model"
        )
    files = [path for path in root.rglob("*") if not path.is_dir()]
    sizes = {path.relative_to(root).as_posix(): path.lstat().st_size for path in files}
    return root / bundle_names(sizes, uri)[0]


def copy_bundle(location: Location, uri: str, target: Path) -> None:
    """Copy the one bundle at or beneath ``location`` to the new folder ``target``.

    Raises DataError and IntegrityError as `bundle_names`; StageError where object storage fails.
    """
    if location.is_local:
        write_bundle(_readers(bundle_beneath(location.local.resolve(), uri)), target)
        return
    infos = location.infos(recursive=True)
    listed = {file.path.removeprefix(f"{location.path}/"): file for file in infos}
    folder, names = bundle_names({name: infos[file].size for name, file in listed.items()}, uri)
    write_bundle({name: listed[folder + name].read_bytes for name in names}, target)


def _readers(bundle: Path) -> dict[str, Callable[[], bytes]]:
    return {name: path.read_bytes for name, path in local_files(bundle).items()}


def write_bundle(files: Mapping[str, Callable[[], bytes]], target: Path) -> None:
    """Write files of checked names beneath ``target``."""
    for name, read in files.items():
        path = target / checked_name(name, str(target))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read())


_OF_A_MODEL = re.compile(
    r"(bundle|metrics|profile)\.json|profile\.safetensors"
    r"|(size_free/|heads/\d+/|content/(answers/)?)?gp\.(json|safetensors)"
)


def free_place(location: Location) -> Location:
    """``location`` if it is empty or holds a model alone; UsageError otherwise: nothing else is replaced."""
    if _is_something_else(location):
        raise UsageError(f"{location} is no folder; give a new one")
    files = _files(location)
    foreign = sorted(name for name in files if not _OF_A_MODEL.fullmatch(name))
    if BUNDLE not in files and (files or _has_entries(location)):
        raise UsageError(
            f"{location} holds files or folders, but no fitted model to replace; give a new folder"
        )
    if foreign:
        raise UsageError(
            f"{location} holds a fitted model and {len(foreign)} other files, the first "
            f"{ascii(foreign[0])[:80]}, which would be lost with it; move them away, or give a new folder"
        )
    return location


def publish_bundle(bundle: Path, location: Location) -> None:
    """Make the model appear whole; in object storage, where nothing is renamed, with its description last."""
    free_place(location)  # fitting takes time, in which somebody may have put files there
    if not location.is_local:
        # One by one, the description first: a prefix may be a bucket, and what comes meanwhile is not ours.
        for name in sorted(_files(location), key=lambda name: (name != BUNDLE, name)):
            if _OF_A_MODEL.fullmatch(name):
                (location / name).delete()
        location.upload(bundle, last=BUNDLE)
        return
    with draft_of_folder(location.local) as draft:
        write_bundle(_readers(bundle), draft)
        replace_folder(draft, location.local)


def _is_something_else(location: Location) -> bool:
    """A file, or a link to nothing."""
    if location.is_local:
        return os.path.lexists(location.local) and not location.local.is_dir()
    return location.is_file()


def _files(location: Location) -> set[str]:
    """Relative names of all that is no folder, at any depth; links are not followed."""
    if not location.is_local:
        return {file.path.removeprefix(f"{location.path}/") for file in location.files(recursive=True)}
    paths = (path for path in location.local.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(location.local).as_posix() for path in paths}


def _has_entries(location: Location) -> bool:
    """Whether there are folders, if only empty ones. Object storage has no folders of its own."""
    return location.is_local and location.local.is_dir() and any(location.local.iterdir())
