"""The files of fits: rows and folders on this machine, and folders that appear whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sgpu.errors import IntegrityError
from sgpu.gp.trainers import Fitted
from sgpu.storage.location import Location
from sgpu.storage.whole import draft_of_folder, keep_first


def resolved(place: Path | Location) -> Path | Location:
    """Without symbolic links, so that all workers mean the same file."""
    return place.resolve() if isinstance(place, Path) else place


@contextmanager
def on_this_machine(place: Path | Location) -> Iterator[Path]:
    """A file or folder as a path; a copy, for as long as it is used, where it lies in object storage."""
    source = Location.of(place)
    if source.is_local:
        yield source.local
        return
    with TemporaryDirectory(prefix="sgpu-fit-") as folder:
        target = Path(folder, source.name)
        if source.is_file():
            target.write_bytes(source.read_bytes())
        else:
            source.download(target)
        yield target


def publish(fitted: Fitted, place: Location, description: str) -> None:
    """Make the folder appear whole: a worker killed half-way leaves nothing that looks finished."""
    if not place.is_local:
        with TemporaryDirectory(prefix="sgpu-fit-") as temporary:
            fitted.save(temporary)
            # There is no renaming in object storage; the description makes a folder finished, so it is last.
            place.upload(Path(temporary), last=description)
        return
    folder = place.local
    with draft_of_folder(folder) as draft:
        fitted.save(draft)
        try:
            keep_first(draft, folder, description)  # equal fits are equal files
        except OSError as error:
            raise IntegrityError(f"{folder} is there but holds no fit; remove it and run again") from error
