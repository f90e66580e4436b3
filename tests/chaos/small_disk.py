"""A disk of its own beneath a folder (a tmpfs), of which as much is free as a test says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = 4096
BALLAST = ".ballast"


class SmallDisk:
    """Mounted at ``place``."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @property
    def used(self) -> int:
        """Bytes that files take, without the ballast."""
        found = os.statvfs(self.place)
        ballast = self.place / BALLAST
        taken = ballast.stat().st_blocks * 512 if ballast.exists() else 0
        return (found.f_blocks - found.f_bfree) * found.f_frsize - taken

    def leave(self, free: int) -> None:
        """Fill the disk until so many bytes are free."""
        found = os.statvfs(self.place)
        with (self.place / BALLAST).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bfree * found.f_frsize - free)

    def clear(self) -> None:
        """Free what was filled, as somebody does who was told that the disk is full."""
        (self.place / BALLAST).unlink()


@contextmanager
def small_disk(place: Path, size: str = "64m") -> Iterator[SmallDisk]:
    """Skips the test where mounting is not allowed: no other full disk is as real."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs another user: one who may mount a tmpfs")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
