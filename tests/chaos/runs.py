"""Processes of `sgpu score` that can be killed at a chosen instant, and never outlive a test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil

INSTANTS = int(os.environ.get("SGPU_CHAOS_INSTANTS", "20"))
TIMEOUT_S = 300.0
# Green, yellow and red: what the watch thinks of a day is not the point here.
DONE = (0, 4, 5)
_STEP_S = 0.005


def share(case: str, instant: int) -> float:
    """Where in a run an instant lies, in [0, 1): random, but one in each of `INSTANTS` equal parts."""
    return (instant + Random(f"{case}/{instant}").random()) / INSTANTS


class Run:
    """A command in a session of its own. ``work``: the folder whose appearance is its first sign of life."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str], work: Path) -> None:
        self._log, self._work = log, work
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=environment, start_new_session=True
            )
        self.began: float | None = None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """Of all generations."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, happened: Callable[[], bool], timeout: float = TIMEOUT_S) -> bool:
        """Whether it happened before the process ended."""
        deadline = time.monotonic() + timeout
        while not happened():
            if not self.alive():
                return False
            if time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"nothing happened within {timeout:.0f} s: {self.said[-2000:]}")
            time.sleep(_STEP_S)
        return True

    def has_begun(self) -> bool:
        """Wait for the first sign of life."""
        if begun := self.wait_until(self._work.exists):
            self.began = time.monotonic()
        return begun

    def lives_for(self, seconds: float) -> bool:
        """Whether it is still there after so many seconds."""
        over = time.monotonic() + seconds
        self.wait_until(lambda: time.monotonic() >= over, seconds + TIMEOUT_S)
        return self.alive()

    def kill(self) -> None:
        """This process alone, with no time to say goodbye."""
        self.process.kill()
        self.process.wait()

    def finish(self, timeout: float = TIMEOUT_S) -> int:
        """Its exit code, or an AssertionError if it has not ended by then."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"not done after {timeout:.0f} s: {self.said[-2000:]}") from None

    def stop(self) -> None:
        """At the end of a test: the process and all that it has started."""
        for one in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def until_done(start: Callable[[], Run], most: int = 5) -> int:
    """Run the command again and again until it is done; how often that was."""
    for count in range(1, most + 1):
        run = start()
        try:
            code = run.finish()
        finally:
            run.stop()
        if code in DONE:
            return count
    raise AssertionError(f"not done after {most} runs, the last one ended with {code}: {run.said[-2000:]}")
