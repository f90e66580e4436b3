"""Where an image's bytes lie: a file, a member of an archive, a cell of a Parquet file, or in memory.

Archives are read in place and never unpacked, so that no member can be written anywhere. Images are asked for
in the order of `order`, so that a compressed archive or a row group is read once from front to back.
"""

from __future__ import annotations

import tarfile
import threading
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sgpu.errors import DataError
from sgpu.images import ImageError, Limits
from sgpu.storage.location import Location
from sgpu.storage.parquet_files import opened

MOST_BYTES = Limits().file_bytes
MOST_DESCRIBING = 2**20
_BUFFER_BYTES = 2**20
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
            with self.path.open("rb") as stream:
                return _bounded(stream, str(self.path))
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
            _, stream_of = _files_in(self.archive)[self.member]
            with stream_of() as stream:
                return _bounded(stream, f"{self.member} in {self.archive}")
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
            value = _cells(self.file, self.column).at(self.row)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot read row {self.row} of {self.file}: {error}. Fetch it again.") from None
        except KeyError:
            raise DataError(f"{self.file} has no column {self.column!r}") from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not data or not isinstance(data, bytes):
            raise DataError(f"{self.file}, row {self.row}: column {self.column!r} holds no image bytes")
        return bytes(data)


def members(archive: Path) -> dict[str, MemberImage]:
    """The plain files of a zip or tar archive by name. DataError for a file that is neither or is cut off."""
    try:
        files = _files_in(archive)
    except ARCHIVE_ERRORS as error:
        raise DataError(f"{archive} cannot be read as an archive: {error}. Download it again.") from None
    return {name: MemberImage(archive, name, position) for name, (position, _) in files.items()}


@lru_cache(maxsize=4)
def _files_in(archive: Path) -> dict[str, tuple[int, Callable[[], Any]]]:
    """The place and the stream of each plain file by its name; the archive is kept open for the next one.

    Asked by a name, tarfile would go through all of its list for each image.
    """
    files: list[tuple[str, Callable[[], Any]]]
    if archive.name.endswith(TAR_SUFFIXES):
        tar = tarfile.open(archive, tarinfo=_Entry)  # noqa: SIM115 - stays open
        files = [
            (entry.name, partial(tar.extractfile, entry)) for entry in tar.getmembers() if entry.isfile()
        ]
    else:
        zipped = zipfile.ZipFile(archive)
        entries = (entry for entry in zipped.infolist() if not entry.is_dir())
        files = [(entry.filename, partial(_unzipped, zipped, entry)) for entry in entries]
    return {name: (position, stream_of) for position, (name, stream_of) in enumerate(files)}


def _unzipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RuntimeError("it is neither stored nor deflated; of others no part can be read alone")
    return archive.open(entry)


class _Entry(tarfile.TarInfo):
    """An entry of a tar archive; what only describes another is read whole, and so has a bound."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and self.size > MOST_DESCRIBING:
            raise tarfile.ReadError(f"{self.size} bytes describe one entry; at most {MOST_DESCRIBING}")
        return super()._proc_member(archive)  # type: ignore[misc]


def _bounded(stream: IO[bytes], name: str) -> bytes:
    """All bytes of an image. Raises ImageError for more than an image may have, and reads no more."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise too_large(name)
    return data


def too_large(name: str) -> ImageError:
    return ImageError(f"the image {name} has more than {MOST_BYTES:,} bytes. Store a smaller version.")


class _Cells:
    """The cells of a column, one in memory at a time; each row group is read from front to back."""

    def __init__(self, file: Path | Location, column: str) -> None:
        self._parquet = opened(Location.of(file), pre_buffer=False, buffer_size=_BUFFER_BYTES)
        if column not in self._parquet.schema_arrow.names:
            raise KeyError(column)
        self._name, self._column = str(file), column
        metadata = self._parquet.metadata
        sizes = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        self._starts = list(accumulate(sizes, initial=0))
        self._lock = threading.Lock()
        self._group, self._next = -1, 0
        self._batches: Any = None

    def at(self, row: int) -> Any:
        """The cell of a row, from 0. Raises DataError where there is none, ImageError for one too large."""
        if not 0 <= row < self._starts[-1]:
            raise DataError(f"{self._name} has {self._starts[-1]} rows; row {row} is asked for")
        group = bisect_right(self._starts, row) - 1
        with self._lock:
            if group != self._group or row < self._next:
                self._group, self._next = group, self._starts[group]
                # A struct of the image's bytes and its name is one column.
                self._batches = self._parquet.iter_batches(
                    batch_size=1, row_groups=[group], columns=[self._column], use_threads=False
                )
            for batch in self._batches:
                self._next += 1
                if self._next > row:
                    if batch.nbytes > MOST_BYTES + _BUFFER_BYTES:
                        row -= self._starts[group]
                        raise too_large(f"in row {row} of row group {group} of {self._name}")
                    return batch.column(0)[0].as_py()
        raise DataError(f"{self._name}: row group {group} has fewer rows than it says. Fetch it again.")


_cells = lru_cache(maxsize=1)(_Cells)
