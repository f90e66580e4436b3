"""Image bytes come back as they are from files, archives and Parquet cells; what is broken is named."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgpu.datasets.image_files import FileImage, MemberImage, ParquetImage, members
from sgpu.errors import DataError
from tests.datasets.vqa_fixtures import png, write_hub

CONTENT = {f"folder/{i}.png": png(i) for i in range(5)}


def write_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("folder")
        for name, data in CONTENT.items():
            archive.writestr(name, data)
    return folder / "images.zip"


def write_tar(folder: Path, suffix: str) -> Path:
    path = folder / f"images{suffix}"
    with tarfile.open(path, "w" if suffix == ".tar" else "w:gz") as archive:
        directory = tarfile.TarInfo("folder")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name, data in CONTENT.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def write_archive(folder: Path, suffix: str) -> Path:
    return write_zip(folder) if suffix == ".zip" else write_tar(folder, suffix)


SUFFIXES = [".zip", ".tar", ".tar.gz", ".tgz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_of_an_archive_are_read_in_place(tmp_path: Path, suffix: str) -> None:
    found = members(write_archive(tmp_path, suffix))
    assert {name: image.read() for name, image in found.items()} == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == [f"images{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_are_ordered_as_they_lie_in_the_archive(tmp_path: Path, suffix: str) -> None:
    found = members(write_archive(tmp_path, suffix))
    assert sorted(found, key=lambda name: found[name].order) == list(CONTENT)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_member_is_named(tmp_path: Path, suffix: str) -> None:
    archive = write_archive(tmp_path, suffix)
    with pytest.raises(DataError, match=r"cannot read gone\.png in the archive .*images"):
        MemberImage(archive, "gone.png").read()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_cut_off_archive_is_named(tmp_path: Path, suffix: str) -> None:
    archive = write_archive(tmp_path, suffix)
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 3])
    with pytest.raises(DataError, match="cannot be read as an archive"):
        members(archive)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"images{suffix}").write_bytes(b"<html>not found</html>" * 40)
    with pytest.raises(DataError, match="cannot be read as an archive"):
        members(tmp_path / f"images{suffix}")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_damaged_bytes_inside_an_archive_are_an_error(tmp_path: Path, suffix: str) -> None:
    archive = write_archive(tmp_path, suffix)
    data = bytearray(archive.read_bytes())
    data[80:120] = bytes(40)
    archive.write_bytes(data)
    with pytest.raises(DataError, match="cannot"):
        for image in members(archive).values():
            image.read()


def test_an_encrypted_member_is_an_error(tmp_path: Path) -> None:
    archive = write_zip(tmp_path)
    data = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := data.find(signature, place + 1)) >= 0:
            data[place + flags] |= 1
    archive.write_bytes(data)
    with pytest.raises(DataError, match="encrypted"):
        members(archive)["folder/1.png"].read()


def test_a_link_in_a_tar_is_no_member(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        link = tarfile.TarInfo("passwd.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert members(tmp_path / "images.tar") == {}


def test_a_file_is_read_and_an_absent_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(png(1))
    assert FileImage(tmp_path / "1.png").read() == png(1)
    with pytest.raises(DataError, match=r"cannot read the image .*2\.png: No such file"):
        FileImage(tmp_path / "2.png").read()


def test_cells_with_a_struct_are_read_across_row_groups(tmp_path: Path) -> None:
    file = write_hub(tmp_path / "a.parquet", {}, [png(i) for i in range(7)], row_group_size=3)
    assert [ParquetImage(file, row).read() for row in range(7)] == [png(i) for i in range(7)]


def test_cells_with_plain_bytes_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"img": [png(1), png(2)]}), tmp_path / "a.parquet")
    assert ParquetImage(tmp_path / "a.parquet", 1, "img").read() == png(2)


def test_images_of_a_parquet_file_are_ordered_by_row(tmp_path: Path) -> None:
    images = [ParquetImage(tmp_path / "a.parquet", row) for row in (10, 2, 1)]
    assert [image.row for image in sorted(images, key=lambda image: image.order)] == [1, 2, 10]


@pytest.mark.parametrize("cell", [None, b"", {"bytes": None, "path": "x.png"}])
def test_a_cell_without_bytes_is_named(tmp_path: Path, cell: Any) -> None:
    file = write_hub(tmp_path / "a.parquet", {}, [png(1), cell])
    with pytest.raises(DataError, match=r"a\.parquet, row 1: column 'image' holds no image bytes"):
        ParquetImage(file, 1).read()


def test_a_column_of_text_holds_no_image_bytes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": ["x.png"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="holds no image bytes"):
        ParquetImage(tmp_path / "a.parquet", 0).read()


def test_a_row_or_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write_hub(tmp_path / "a.parquet", {}, [png(1)])
    with pytest.raises(DataError, match="has 1 rows; row 1 is asked for"):
        ParquetImage(file, 1).read()
    with pytest.raises(DataError, match="has no column 'img'"):
        ParquetImage(file, 0, "img").read()


def test_a_cut_off_parquet_file_is_named(tmp_path: Path) -> None:
    file = write_hub(tmp_path / "a.parquet", {}, [png(1)])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot read row 0 of .*a\.parquet"):
        ParquetImage(file, 0).read()
