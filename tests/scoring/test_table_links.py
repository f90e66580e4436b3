from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.errors import IntegrityError
from sgpu.scoring.table_links import refuse_links
from sgpu.storage.location import Location


@pytest.mark.parametrize("name", ["link", "date=2026-11-20/link"])
@pytest.mark.parametrize("target", ["folder", "file", "nothing"])
def test_a_link_to_anything_is_refused(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    link = tmp_path / "table" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / target)
    with pytest.raises(IntegrityError, match=r"link' is a link"):
        refuse_links(Location.of(tmp_path / "table"))


def test_files_and_folders_are_fine(tmp_path: Path) -> None:
    (tmp_path / "date=2026-11-20").mkdir()
    (tmp_path / "date=2026-11-20" / "rows.parquet").touch()
    refuse_links(Location.of(tmp_path))


def test_object_storage_is_not_walked() -> None:
    refuse_links(Location.of("s3://bucket/table"))
