"""Progress of long work: a live bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from sgpu.runtime.ledger import IN_WORK, SINCE
from sgpu.visible import controls_shown

POLL_S = 1.0
LOG_EVERY_S = 20.0
HINT_AFTER_S = 300.0
NO_WORKER = "no worker is ready; `ray status` says what it waits for, or its weights are still being loaded"


class Progress:
    """Where a run tells a person what it is doing. Writes to stderr only; stdout stays for results."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.expected: dict[str, float] = {}  # planned seconds of the study's pools that are not done

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(controls_shown(text), markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int, done: int = 0, pools: Collection[str] = ()) -> Iterator[Bar]:
        """Show a bar for ``total`` rows of these ``pools``, of which an earlier run has finished ``done``."""
        then = sum(seconds for pool, seconds in self.expected.items() if pool not in pools)
        if not self.console.is_terminal:
            yield Bar(self, title, total, done, None, then)
            return
        columns = [
            TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn(),
        ]  # fmt: skip
        with RichProgress(*columns, console=self.console, transient=True) as live:
            yield Bar(self, title, total, done, live, then)


class Bar:
    """A shelf's progress, fed by polling counters that live elsewhere.

    ``then`` are the planned seconds of what the study does after it.
    """

    def __init__(
        self, owner: Progress, title: str, total: int, done: int, live: RichProgress | None, then: float
    ) -> None:
        self._owner, self._title, self._total, self._done, self._live = owner, title, total, done, live
        self._then = then
        self._task = live.add_task(title, total=total, completed=done, rate="starting") if live else None
        self._started = time.monotonic()
        self._first_row: float | None = None
        self._last_line = self._started

    @contextmanager
    def follow(self, counts: Callable[[], Mapping[str, float]]) -> Iterator[None]:
        """Poll ``counts`` (rows and other totals) in a thread while the body runs."""
        stop = threading.Event()

        def poll() -> None:
            while not stop.wait(POLL_S):
                self.show(counts())

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=10)

    def show(self, counts: Mapping[str, float]) -> None:
        rows = int(counts.get("rows", 0))
        now = time.monotonic()
        rate = self._rate(rows, counts, now)
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=self._done + rows, rate=rate)
        elif now - self._last_line >= LOG_EVERY_S:
            self._last_line = now
            self._owner.say(f"  {self._title}: {self._done + rows}/{self._total}  {rate}")

    def _rate(self, rows: int, counts: Mapping[str, float], now: float) -> str:
        in_work, seconds = int(counts.get(IN_WORK, 0)), counts.get(SINCE, now - self._started)
        if not rows and not in_work:
            waited = now - self._started
            hint = "" if waited < HINT_AFTER_S else f": {NO_WORKER}"
            return f"starting, {waited:.0f} s{hint}"
        if not rows:
            return f"{in_work} rows in work for {seconds:.0f} s, none done yet"
        seconds = max(seconds, 1e-9)
        parts = [f"{rows / seconds:.2f} rows/s"]
        others = [name for name in counts if name not in {"rows", IN_WORK, SINCE}]
        parts += [f"{counts[name] / seconds:.0f} {name}/s" for name in others]
        if in_work:
            parts.append(f"{in_work} in work")
        if self._live is None and (left := self._total - self._done - rows) > 0:
            parts.append(f"about {left * seconds / rows:.0f} s left")  # a live bar has a column for it
        if self._then:
            parts.append(f"then {max(1, self._then / 60):.0f} min by plan")
        return "  ".join(parts)
