"""Two runs of one day at the same time, with the lock that keeps one of them out and without it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.night import Night, copied
from tests.chaos.onlooker import looked_at
from tests.chaos.outcome import DAY, Tables, outcome
from tests.chaos.runs import DONE, INSTANTS, Run, share, until_done
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

TIMES = max(1, INSTANTS // 4)
REFUSED = 1
# The second run is so much later at most: both work for longer.
WITHIN_S = 3.0


def both(first: Run, second: Run) -> list[int]:
    """The exit codes of two runs that are on their way."""
    try:
        return [first.finish(), second.finish()]
    finally:
        first.stop()
        second.stop()


@pytest.mark.parametrize("lock", [True, False], ids=["locked", "unlocked"])
def test_the_same_run_twice_at_once_scores_each_request_once(
    world: World, tally: Tally, tmp_path: Path, lock: bool
) -> None:
    with looked_at(tmp_path, [world.wanted.tables.scores.height]) as report:
        for number in range(TIMES):
            started, out = time.monotonic(), tmp_path / f"{number}" / "out"
            first = world.night.start(out, lock=lock)
            time.sleep(WITHIN_S * share("at once", number))
            codes = both(first, world.night.start(out, lock=lock))
            # Which of them gets the lock is not said; one does.
            refused = codes.count(REFUSED) if lock else 0
            assert refused < 2 and sum(code in DONE for code in codes) == 2 - refused, (codes, first.said)
            runs = 2
            if refused:
                runs += until_done(partial(world.night.start, out))
            found = outcome(out, world.wanted)
            name = f"two runs at once, {'with' if lock else 'without'} the lock"
            tally.add(name, found, seconds=time.monotonic() - started, runs=runs)
            assert found.problems == ()
    assert report["problems"] == []


def test_two_runs_at_once_that_see_different_files_score_each_request_once(
    clean_world: World, tally: Tally, tmp_path: Path
) -> None:
    """One run sees only the plain files. Whoever is last, the next run has the day as a whole."""
    with looked_at(tmp_path) as report:
        for number in range(TIMES):
            started, place = time.monotonic(), tmp_path / f"{number}"
            part, out = copied(clean_world.logs, place / "part"), place / "out"
            for file in sorted((part / f"dt={DAY}").iterdir()):
                if file.suffix != ".jsonl":
                    file.unlink()
            nights = [Night(str(logs), clean_world.night.model) for logs in (part, clean_world.logs)]
            if number % 2:
                nights.reverse()
            first = nights[0].start(out, lock=False)
            time.sleep(WITHIN_S * share("different files", number))
            codes = both(first, nights[1].start(out, lock=False))
            assert codes == [0, 0], first.said
            ids = Tables.of(out).ids
            assert ids.keys() == clean_world.wanted.tables.ids.keys() and max(ids.values()) == 1
            clean_world.night.score(out)
            found = outcome(out, clean_world.wanted, counts={"rows_in": clean_world.truth["rows_in"]})
            tally.add(
                "two runs at once, of different files",
                found,
                seconds=time.monotonic() - started,
                runs=3,
            )
            assert found.problems == ()
    assert report["problems"] == []
