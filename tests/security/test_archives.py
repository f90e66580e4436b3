"""Archives are read in place: whatever their members are called, nothing is written anywhere."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from sgpu.datasets.image_files import members

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
