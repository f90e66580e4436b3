"""The parts in which a day's files are read: ranges of bytes where a format allows, else whole files."""

from __future__ import annotations

from dataclasses import dataclass

from sgpu.logs.kinds import Kind, kind_of
from sgpu.logs.snapshot import Snapshot


@dataclass(frozen=True)
class Split:
    """Bytes ``start`` to ``end`` of a file of the snapshot; what starts in the range belongs to it.

    In plain JSON Lines that is each line, in Parquet each row group; a compressed file is one split.
    """

    number: int
    file: int
    start: int
    end: int


def splits_of(snapshot: Snapshot, split_bytes: int) -> list[Split]:
    """All files in the order of the snapshot, each in ranges of ``split_bytes``; one at least per file."""
    found: list[Split] = []
    for place, file in enumerate(snapshot.files):
        kind = kind_of(file.path)
        whole = file.refused or kind not in (Kind.LINES, Kind.PARQUET)
        step = max(file.size, 1) if whole else split_bytes
        for start in range(0, max(file.size, 1), step):
            found.append(Split(len(found), place, start, min(start + step, file.size)))
    return found
