"""Lines of a stream, dealt out to the ranges in which they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgpu.logs.pinned_file import PinnedFile, lines_of
from sgpu.logs.snapshot import LogFile
from sgpu.storage.json_lines import FileKind
from sgpu.storage.location import Location


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a log."""
    read: list[int] = []
    original = PinnedFile.readinto

    def counted(self: PinnedFile, buffer: Any, /) -> int:
        read.append(original(self, buffer))
        return read[-1]

    monkeypatch.setattr(PinnedFile, "readinto", counted)
    return read


def test_a_file_of_one_line_is_not_read_to_its_end_by_every_range(tmp_path: Path, read: list[int]) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(b"x" * 12_000_000)
    file = LogFile(path.name, 12_000_000, path.stat().st_mtime_ns)
    found = []
    for start in range(0, 12_000_000, 500_000):
        with PinnedFile(Location.of(tmp_path), Location.of(path), file) as pinned:
            found += [
                len(line.raw or b"") for line in lines_of(pinned, FileKind.LINES, start, start + 500_000)
            ]
    assert found == [12_000_000]
    assert sum(read) < 5 * 12_000_000
