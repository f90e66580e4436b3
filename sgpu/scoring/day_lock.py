"""One run at a time on a day of an output, and the folder of this machine that goes with the output."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path

from sgpu.errors import HeldError
from sgpu.models.weights import cache_dir
from sgpu.runtime.lock import run_lock
from sgpu.scoring.settings import ScoreSettings
from sgpu.storage.location import Location


def working_folder(settings: ScoreSettings) -> Path:
    """The folder of this machine that goes with the table: models, and the locks of runs on this machine."""
    out = Location.of(settings.out)
    if out.is_local:
        return out.local / "work"
    return cache_dir() / "scoring" / hashlib.sha256(str(out).encode()).hexdigest()[:12]


@contextmanager
def day_lock(settings: ScoreSettings, day: date) -> Iterator[Callable[[], None]]:
    """As `sgpu.runtime.lock.run_lock`, with the day in what is told."""
    folder = working_folder(settings) / "locks" / day.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    place = Location.of(settings.out) / "work" / "locks" / day.isoformat()
    with ExitStack() as stack:
        try:
            still_ours = stack.enter_context(run_lock(place, folder))
        except HeldError as error:
            raise HeldError(
                f"another run is scoring {day} into {settings.out}. Wait for it and run this again: there is "
                f"then nothing left to do, or only what is new. ({error})"
            ) from None
        yield still_ours


@contextmanager
def no_lock() -> Iterator[Callable[[], None]]:
    """Where two runs at once may do some work twice; the table comes out the same."""
    yield lambda: None
