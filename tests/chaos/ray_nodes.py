"""A Ray cluster of two nodes with one worker on each, and what of it can be killed."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from tests.chaos.night import Night
from tests.chaos.runs import DONE, Run
from tests.cluster.nodes import LocalCluster, Node, with_folders

ROOT = Path(__file__).parents[2]
# A node that is gone is missed after 5 s and not after 15.
SOON_MISSED = {"RAY_health_check_period_ms": "1000"}


class TwoNodes:
    """Two CPUs on the head and two on ``second``: Ray Data spreads a run's two workers over them, and its own
    tasks need a whole CPU beside one.
    """

    def __init__(self) -> None:
        self.cluster = LocalCluster(**with_folders(SOON_MISSED, ROOT))
        try:
            self.head = self.cluster.add(2)
            self.second = self.cluster.add(2)
        except BaseException:
            self.stop()
            raise

    def start(self, night: Night, out: Path) -> Run:
        """A run whose driver is on the head."""
        return night.start(out, self.cluster.environment, workers=2, address=self.cluster.address)

    def at_work(self, *nodes: Node) -> list[psutil.Process]:
        """The processes of a run on these nodes (default: both): workers, and the actor of their ledger."""
        found = []
        for node in nodes or (self.head, self.second):
            if node.process.poll() is None:
                found += [
                    one
                    for one in _beneath(node)
                    if _title(one).startswith(("ray::MapWorker", "ray::MeteredLedger"))
                ]
        return found

    def replace_second(self) -> None:
        """What a provider does after a spot node was taken."""
        if self.second.process.poll() is not None:
            self.second = self.cluster.add(2)

    def undisturbed_seconds(self, night: Night, out: Path) -> float:
        """From the first worker to the end of a run."""
        run = self.start(night, out)
        try:
            assert run.wait_until(lambda: bool(self.at_work())), run.said
            began = time.monotonic()
            assert run.finish() in DONE, run.said
        finally:
            run.stop()
        return time.monotonic() - began

    def stop(self) -> None:
        self.cluster.stop()


def _beneath(node: Node) -> list[psutil.Process]:
    try:
        return psutil.Process(node.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return ""
