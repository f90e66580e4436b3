"""kill -9 of Ray's processes while a run is at work: of the driver, of a worker, of a whole node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.chaos.outcome import outcome
from tests.chaos.ray_nodes import TwoNodes
from tests.chaos.runs import DONE, INSTANTS, Run, share, until_done
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

DRIVERS = max(1, INSTANTS // 4)
LOST_NODES = max(1, INSTANTS // 10)
WORKERS_A_RUN, NODES_A_RUN = 4, 2


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture(scope="module")
def seconds(world: World, nodes: TwoNodes, folder: Path) -> float:
    return nodes.undisturbed_seconds(world.night, folder / "undisturbed" / "out")


class Attack:
    """Runs in which something is killed at given instants, until that was done often enough."""

    def __init__(self, world: World, nodes: TwoNodes, folder: Path, tally: Tally, seconds: float) -> None:
        self._world, self._nodes, self._folder = world, nodes, folder
        self._tally, self._seconds = tally, seconds

    def go_on(self, name: str, wanted: int, a_run: int, kill: Callable[[Run, Random], bool]) -> None:
        """``kill`` says whether there was something to be killed; it is called ``a_run`` times in a run."""
        killed, number = 0, 0
        while killed < wanted:
            number += 1
            assert number <= 3 * wanted, "the runs were always done before their time"
            # Fewer than INSTANTS are spread over the whole run.
            parts = ((killed + i) * INSTANTS // wanted for i in range(min(a_run, wanted - killed)))
            due = sorted(share(name, part) for part in parts)
            done = self._one(name, number, due, kill)
            killed += done
            if not done:  # this machine was faster than when the undisturbed run was timed
                self._seconds *= 0.8

    def _one(self, name: str, number: int, due: list[float], kill: Callable[[Run, Random], bool]) -> int:
        started, draw, killed = time.monotonic(), Random(f"{name}/{number}"), 0
        out = self._folder / name.replace(" ", "-") / f"{number}" / "out"
        self._nodes.replace_second()
        run = self._nodes.start(self._world.night, out)
        try:
            assert run.wait_until(lambda: bool(self._nodes.at_work())), run.said
            began = time.monotonic()
            for moment in due:
                if run.lives_for(began + moment * self._seconds - time.monotonic()):
                    killed += kill(run, draw)
            code = run.finish()
        finally:
            run.stop()
        runs = 1 if code in DONE else 1 + until_done(lambda: self._nodes.start(self._world.night, out))
        found = outcome(out, self._world.wanted)
        seconds = time.monotonic() - started
        self._tally.add(f"kill -9 of {name}", found, seconds=seconds, times=killed, runs=runs)
        assert found.problems == ()
        return killed


def wait_for_work(run: Run, nodes: TwoNodes) -> bool:
    """Wait until the second node works for ``run``; return False if the run ends first."""
    return run.wait_until(lambda: bool(nodes.at_work(nodes.second)))


@pytest.fixture
def attack(world: World, nodes: TwoNodes, folder: Path, tally: Tally, seconds: float) -> Attack:
    return Attack(world, nodes, folder, tally, seconds)


def test_a_run_whose_driver_is_killed_leaves_its_workers_and_is_finished_by_the_next(attack: Attack) -> None:
    def kill(run: Run, draw: Random) -> bool:
        run.kill()
        return True

    attack.go_on("the driver of Ray workers", DRIVERS, 1, kill)


def test_a_run_goes_on_when_its_workers_are_killed(attack: Attack, nodes: TwoNodes) -> None:
    def kill(run: Run, draw: Random) -> bool:
        victims = sorted(nodes.at_work(), key=lambda one: one.pid)
        if not victims:
            return False
        draw.choice(victims).kill()
        return True

    attack.go_on("a Ray worker", INSTANTS, WORKERS_A_RUN, kill)


def test_a_run_goes_on_when_a_node_is_taken_and_replaced(attack: Attack, nodes: TwoNodes) -> None:
    def kill(run: Run, draw: Random) -> bool:
        if at_work := wait_for_work(run, nodes):
            nodes.second.take_away()
            nodes.replace_second()
        return at_work

    attack.go_on("a node", INSTANTS, NODES_A_RUN, kill)


def test_a_run_is_finished_by_who_is_left_when_nobody_replaces_a_node(
    attack: Attack, nodes: TwoNodes
) -> None:
    def kill(run: Run, draw: Random) -> bool:
        if at_work := wait_for_work(run, nodes):
            nodes.second.take_away()
        return at_work

    attack.go_on("a node that is not replaced", LOST_NODES, 1, kill)
