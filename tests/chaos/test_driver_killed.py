"""kill -9 of the process that was started, at any instant of its run."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.chaos.outcome import outcome
from tests.chaos.runs import INSTANTS, share, until_done
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def seconds(world: World, folder: Path) -> float:
    """From the first sign of life to the end of a run that nobody disturbs."""
    run = world.night.start(folder / "undisturbed" / "out")
    try:
        assert run.has_begun() and run.finish() in (0, 4, 5), run.said
        assert run.began is not None
        return time.monotonic() - run.began
    finally:
        run.stop()


@pytest.mark.parametrize("instant", range(INSTANTS))
def test_a_run_whose_driver_is_killed_is_finished_by_the_next(
    world: World, tally: Tally, folder: Path, seconds: float, instant: int
) -> None:
    started = time.monotonic()
    for attempt in range(4):
        out = folder / f"{instant}-{attempt}" / "out"
        run = world.night.start(out)
        try:
            killed = run.has_begun() and run.lives_for(share("driver", instant) * seconds / 2**attempt)
        finally:
            run.kill()
            run.stop()
        if killed:
            break
    assert killed, "it was always done before its time"
    runs = until_done(lambda: world.night.start(out))
    found = outcome(out, world.wanted)
    tally.add("kill -9 of the driver", found, seconds=time.monotonic() - started, runs=1 + runs)
    assert found.problems == ()


def test_a_killed_driver_takes_the_ray_that_it_has_started_with_it(
    world: World, tally: Tally, folder: Path
) -> None:
    started, out = time.monotonic(), folder / "own-ray" / "out"
    run, others = world.night.start(out, workers=2), []
    try:
        assert run.wait_until(lambda: any(out.glob("work/*/parts/reading/done/*"))), run.said
        others = run.children()
        run.kill()
        deadline = time.monotonic() + 120
        while (left := [one for one in others if works(one)]) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        run.stop()
        for one in filter(works, others):
            one.kill()
    assert len(others) > 3 and left == []
    runs = until_done(lambda: world.night.start(out, workers=2))
    found = outcome(out, world.wanted)
    tally.add(
        "kill -9 of a driver with its own Ray", found, seconds=time.monotonic() - started, runs=1 + runs
    )
    assert found.problems == ()


def works(process: psutil.Process) -> bool:
    """Whether it is there, and is not only waiting for somebody to take note of its end."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
