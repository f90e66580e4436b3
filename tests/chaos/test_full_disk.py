"""A disk that is full at any write of a run: of the tables, of the work, of both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sgpu.errors import StageError
from sgpu.scoring import publish
from sgpu.storage.location import Location
from tests.chaos.outcome import outcome
from tests.chaos.runs import INSTANTS
from tests.chaos.small_disk import BLOCK, SmallDisk, small_disk
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@contextmanager
def fullness(disk: SmallDisk) -> Iterator[set[int]]:
    """How full the disk is after each write of a run."""
    levels: set[int] = set()

    def watched(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            result = function(*given, **named)
            levels.add(disk.used)
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((Location, "write_bytes"), (publish, "commit"), (publish, "open_or_create")):
            patch.setattr(owner, name, watched(getattr(owner, name)))
        yield levels


@pytest.mark.parametrize("where", ["", "work", "scores", "quarantine"])
def test_a_run_that_finds_the_disk_full_says_so_and_is_finished_when_there_is_room(
    small_world: World, tally: Tally, tmp_path: Path, where: str
) -> None:
    with small_disk(tmp_path / "measured" / where) as disk, fullness(disk) as levels:
        small_world.night.score(tmp_path / "measured")
    wanted = sorted(level for level in levels if level > BLOCK)
    times = max(2, INSTANTS // 2) if not where else max(2, INSTANTS // 4)
    # The last one is a commit.
    drawn = Random(f"disk/{where}").sample(wanted[:-1], min(times, len(wanted)) - 1)
    for number, level in enumerate([*drawn, wanted[-1]]):
        started = time.monotonic()
        out = tmp_path / f"out-{number}"
        with small_disk(out / where) as disk:
            disk.leave(level - BLOCK)
            with pytest.raises(StageError, match="no space left") as told:
                small_world.night.score(out)
            assert "the same command goes on from there" in str(told.value)
            disk.clear()
            small_world.night.score(out)
            found = outcome(out, small_world.wanted)
        tally.add(
            f"disk full: {where or 'all'} of the output",
            found,
            seconds=time.monotonic() - started,
            runs=2,
        )
        assert found.problems == (), f"at {level} bytes"
