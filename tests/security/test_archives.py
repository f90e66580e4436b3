"""Archives are read in place: whatever their members are called, nothing is written anywhere."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.base import ImageReference
from sgpu.datasets.image_files import FileImage, ParquetImage, members
from sgpu.errors import DataError
from sgpu.images import ImageError

HOSTILE = (
    "../escaped.png",
    "/tmp/sgpu-escaped.png",
    "a/../../escaped.png",
    "..\\escaped.png",
    "C:\\escaped.png",
)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def packed(archive: Path) -> Path:
    archive.parent.mkdir(parents=True)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for name in HOSTILE:
                opened.writestr(name, b"bytes")
        return archive
    with tarfile.open(archive, "w:gz") as opened:
        for name in HOSTILE:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            opened.addfile(entry, io.BytesIO(b"bytes"))
    return archive


@pytest.mark.parametrize("name", ["images.zip", "images.tar.gz"])
def test_members_whose_names_lead_out_are_read_into_memory_and_written_nowhere(
    name: str, tmp_path: Path
) -> None:
    archive = packed(tmp_path / "data" / name)
    found = members(archive)
    assert {one.read() for one in found.values()} == {b"bytes"}
    assert files_of(tmp_path) == ["data", f"data/{name}"]
    assert not Path("/tmp/sgpu-escaped.png").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_devices_and_pipes_in_a_tar_are_no_members(kind: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "images.tar"
    with tarfile.open(archive, "w") as opened:
        entry = tarfile.TarInfo("image.png")
        entry.type, entry.linkname = kind, "/etc/passwd"
        opened.addfile(entry)
    assert members(archive) == {}


BEYOND = 65 * 2**20


def image_of(tmp_path: Path, kind: str) -> ImageReference:
    """An image of more bytes than any may have, in a file of its own, an archive or a table."""
    file = tmp_path / f"images{kind}"
    if kind == ".png":
        with file.open("wb") as stream:
            stream.truncate(BEYOND)
        return FileImage(file)
    if kind == ".parquet":
        pq.write_table(pa.table({"image": [bytes(BEYOND), b"next"]}), file)
        return ParquetImage(file, 0)
    if kind == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened, opened.open("a.png", "w") as entry:
            for _ in range(8 * BEYOND // 2**20):
                entry.write(bytes(2**20))
    else:
        with tarfile.open(file, "w:gz") as packed:
            entry = tarfile.TarInfo("a.png")
            entry.size = BEYOND
            packed.addfile(entry, io.BytesIO(bytes(BEYOND)))
    return members(file)["a.png"]


@pytest.mark.parametrize("kind", [".png", ".zip", ".tar.gz", ".parquet"])
def test_an_image_is_read_up_to_the_bound_and_never_whole(kind: str, tmp_path: Path) -> None:
    image = image_of(tmp_path, kind)
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match=r"has more than 67,108,864 bytes"):
            image.read()
        assert tracemalloc.get_traced_memory()[1] < 160 * 2**20
    finally:
        tracemalloc.stop()


def test_a_compression_that_cannot_be_read_in_part_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as opened:
        opened.writestr("a.png", bytes(2**20))
    with pytest.raises(DataError, match="neither stored nor deflated"):
        members(tmp_path / "a.zip")["a.png"].read()


def test_what_describes_an_entry_of_a_tar_is_bounded(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("a.png")
    entry.pax_headers = {"comment": "x" * 2**21}
    with tarfile.open(tmp_path / "images.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as opened:
        opened.addfile(entry)
    with pytest.raises(DataError, match=r"bytes describe one entry; at most 1048576"):
        members(tmp_path / "images.tar.gz")


def test_cells_are_read_in_any_order(tmp_path: Path) -> None:
    cells = [{"bytes": bytes([number]) * 10, "path": None} for number in range(9)]
    pq.write_table(
        pa.Table.from_pylist([{"image": cell} for cell in cells]), tmp_path / "a", row_group_size=4
    )
    for row in (0, 1, 3, 8, 2, 2, 7, 5):
        assert ParquetImage(tmp_path / "a", row).read() == cells[row]["bytes"]
