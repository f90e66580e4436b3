"""The same nights with workers in processes of their own, some of which die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu.runtime.session import one_ray_session
from sgpu.scoring.day import score_day
from sgpu.scoring.models.pinning import ScorerSource
from sgpu.scoring.outcome import DayResult
from tests.scoring.nights import nights
from tests.scoring.nights.nights import DAY, SCORER, reasons, row, rows, scores, settings, write


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with one_ray_session():
        yield


def night(place: Path, workers: int = 2) -> DayResult:
    asked = settings(place, workers=workers, bucket_rows=16)
    return score_day(asked, DAY, source=ScorerSource(place / "out" / "work", SCORER))


def alone(place: Path) -> dict[str, bytes]:
    """What the same night publishes without Ray."""
    other = place / "alone"
    other.mkdir()
    for name in ("logs", "model"):
        (other / name).symlink_to(place / name)
    nights.night(other, bucket_rows=16)
    return nights.files(other)


def test_workers_publish_what_one_process_does_though_one_of_them_is_killed(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(60)))
    work = place / "out" / "work"
    work.mkdir(parents=True)
    (work / "slow").write_text("3.0")

    def kill_one() -> None:
        while not (work / "pids").is_file():
            if over.wait(0.05):
                return
        os.kill(int((work / "pids").read_text().split()[0]), signal.SIGKILL)

    over = threading.Event()
    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        night(place)
    finally:
        over.set()
        killer.join()
    tried = (work / "pids").read_text().split()
    # Four buckets, one of them twice; on a busy machine the others are done before a new worker is ready.
    assert len(tried) == 5 and tried.count(tried[0]) == 1
    assert nights.files(place) == alone(place)


@pytest.mark.slow
def test_a_set_that_kills_every_worker_is_quarantined_and_the_others_are_scored(place: Path) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(20)), row("bad", ["POISON", "x"])])
    result = night(place, workers=1)
    assert scores(place)["request_id"].to_list() == [f"q{i:05d}" for i in range(20)]
    assert reasons(place) == {"scoring_failed": 1}
    assert result.accounting is not None and result.accounting.quarantined == 1
