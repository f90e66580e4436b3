"""Where an image's bytes lie: a file, a member of an archive, a cell of a Parquet file, or in memory.

Archives are read in place and never unpacked, so that no member can be written anywhere. Images are asked for
in the order of `order`, so that a compressed archive or a row group is read once from front to back.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from sgpu.errors import DataError
from sgpu.location import Location
from sgpu.parquet_files import opened

Order = tuple[str, int, str]
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
# RuntimeError: an encrypted member, or (NotImplementedError) a compression that zipfile does not know.
ARCHIVE_ERRORS = (OSError, EOFError, RuntimeError, zlib.error, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True)
class FileImage:
    """A file of its own."""

    path: Path

    @property
    def order(self) -> Order:
        return (str(self.path), 0, "")

    def read(self) -> bytes:
        """See `sgpu.datasets.base.ImageReference`."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read the image {self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class MemberImage:
    """A member of a zip or tar archive; ``position`` is its place in the archive."""

    archive: Path
    member: str
    position: int = 0

    @property
    def order(self) -> Order:
        return (str(self.archive), self.position, self.member)

    def read(self) -> bytes:
        """See `sgpu.datasets.base.ImageReference`."""
        try:
            opened = open_archive(self.archive)
            if isinstance(opened, zipfile.ZipFile):
                return opened.read(self.member)
            stream = opened.extractfile(_tar_entries(self.archive)[self.member])
            if stream is None:
                raise KeyError(self.member)
            return stream.read()
        except (KeyError, *ARCHIVE_ERRORS) as error:
            raise DataError(f"cannot read {self.member} in the archive {self.archive}: {error}") from None


@dataclass(frozen=True)
class ParquetImage:
    """A cell of a Parquet file: binary, or the struct of ``bytes`` and ``path`` that Hub data sets use."""

    file: Path | Location
    row: int
    column: str = "image"

    @property
    def order(self) -> Order:
        return (str(self.file), self.row, self.column)

    def read(self) -> bytes:
        """See `sgpu.datasets.base.ImageReference`."""
        try:
            group, first = _group_of(self.file, self.row)
            value = _column(self.file, group, self.column)[self.row - first].as_py()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot read row {self.row} of {self.file}: {error}. Fetch it again.") from None
        except KeyError:
            raise DataError(f"{self.file} has no column {self.column!r}") from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not data or not isinstance(data, bytes):
            raise DataError(f"{self.file}, row {self.row}: column {self.column!r} holds no image bytes")
        return bytes(data)


@dataclass(frozen=True)
class BytesImage:
    """Bytes that are in memory already; for small images only."""

    data: bytes
    name: str = ""

    @property
    def order(self) -> Order:
        return ("", 0, self.name)

    def read(self) -> bytes:
        """See `sgpu.datasets.base.ImageReference`."""
        return self.data


def members(archive: Path) -> dict[str, MemberImage]:
    """The plain files of a zip or tar archive by name. DataError for a file that is neither or is cut off."""
    try:
        opened = open_archive(archive)
        if isinstance(opened, zipfile.ZipFile):
            names = [entry.filename for entry in opened.infolist() if not entry.is_dir()]
        else:
            names = [entry.name for entry in opened.getmembers() if entry.isfile()]
    except ARCHIVE_ERRORS as error:
        raise DataError(f"{archive} cannot be read as an archive: {error}. Download it again.") from None
    return {name: MemberImage(archive, name, position) for position, name in enumerate(names)}


@lru_cache(maxsize=4)
def open_archive(archive: Path) -> zipfile.ZipFile | tarfile.TarFile:
    """The opened archive, kept open for the next member."""
    if archive.name.endswith(TAR_SUFFIXES):
        return tarfile.open(archive)
    return zipfile.ZipFile(archive)


@lru_cache(maxsize=2)
def _tar_entries(archive: Path) -> dict[str, tarfile.TarInfo]:
    """By name: asked by its name, tarfile would go through all of its list for each image."""
    opened = open_archive(archive)
    assert isinstance(opened, tarfile.TarFile)
    return {entry.name: entry for entry in opened.getmembers()}


@lru_cache(maxsize=8)
def _starts(file: Path | Location) -> list[int]:
    metadata = opened(Location.of(file)).metadata
    starts = [0]
    for group in range(metadata.num_row_groups):
        starts.append(starts[-1] + metadata.row_group(group).num_rows)
    return starts


def _group_of(file: Path | Location, row: int) -> tuple[int, int]:
    starts = _starts(file)
    for group, (first, end) in enumerate(pairwise(starts)):
        if first <= row < end:
            return group, first
    raise DataError(f"{file} has {starts[-1]} rows; row {row} is asked for")


@lru_cache(maxsize=1)
def _column(file: Path | Location, group: int, column: str) -> Any:
    table: pa.Table = opened(Location.of(file)).read_row_group(group, columns=[column])
    return table[column]
