"""Notices pools that do not start or do not go on: Ray waits for ever for a worker that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from sgpu.errors import StageError
from sgpu.runtime.ledger import ask
from sgpu.runtime.progress import HINT_AFTER_S, NO_WORKER
from sgpu.runtime.shelves import Crew

STALLED_S = 1800.0
CHECK_S = 2.0  # between two looks at the pools


def watch(
    work: Iterator[None],
    crews: Sequence[Crew],
    ledgers: Sequence[Any],
    say: Callable[[str], None],
    stalled_s: float = STALLED_S,
) -> Iterator[None]:
    """Do the ``work`` of a shelf in a thread of its own; yield when a block is written, and every CHECK_S.

    Tells ``say`` of a pool whose first worker is not ready after five minutes. Raises StageError if the
    workers of a pool with rows left begin and end nothing for ``stalled_s``, from the first ready one on.
    """
    told: SimpleQueue[BaseException | bool] = SimpleQueue()  # whether there is more, or what stopped it

    def do() -> None:
        try:
            for _ in work:
                told.put(True)
            told.put(False)
        except BaseException as error:  # raised again below
            told.put(error)

    threading.Thread(target=do, daemon=True).start()
    slow, checked = set[str](), time.monotonic()
    while True:
        try:
            news = told.get(timeout=CHECK_S)
        except Empty:
            news = True
        if isinstance(news, BaseException):
            raise news
        if not news:
            return
        if time.monotonic() - checked >= CHECK_S:
            for crew, shared in zip(crews, ledgers, strict=True):
                _check(crew, shared, say, slow, stalled_s)
            checked = time.monotonic()
        yield


def _check(crew: Crew, shared: Any, say: Callable[[str], None], slow: set[str], stalled_s: float) -> None:
    if sum(ask(shared, "written")) >= sum(task.rows for task in crew.tasks):
        return
    is_ready, seconds = ask(shared, "quiet")
    if is_ready and seconds > stalled_s:
        raise StageError(
            f"{crew.title}: its workers have begun and ended no row for {seconds / 60:.1f} minutes. What is "
            "finished is kept: the same command goes on from there. `ray status` and the logs of the workers "
            "may tell why; bounds.stalled_minutes of the study sets the bound."
        )
    if not is_ready and seconds > HINT_AFTER_S and crew.name not in slow:
        slow.add(crew.name)
        say(f"{crew.title}: {NO_WORKER} (for {seconds / 60:.0f} minutes)")
