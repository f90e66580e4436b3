"""A study's shelves on two nodes of four pretended GPUs, with engines that sleep, beside what was planned."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from sgpu.runtime.schedule import Pool, cut_level, replay
from sgpu.storage.store import Store
from tests.cluster.nodes import LocalCluster, with_folders
from tests.cluster.sleeping import BLOCK, GPUS, LEVELS, MODELS, ROWS, SPEED, stages_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
SLACK = 1.25


class Logged(NamedTuple):
    """A start of an engine, without rows, or a call; ``end`` is a moment."""

    pool: str
    end: float
    seconds: float
    rows: tuple[str, ...]

    @property
    def begin(self) -> float:
        return self.end - self.seconds


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    cluster = LocalCluster(**with_folders({}, ROOT))
    try:
        for _ in range(2):
            cluster.add(8, 4)
        yield cluster
    finally:
        cluster.stop()


def start(cluster: LocalCluster, out: Path, sizes: str) -> subprocess.Popen[str]:
    out.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "tests/cluster/sleeping.py"), str(out), cluster.address, sizes]
    environment = {**cluster.environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def read_log(out: Path) -> list[Logged]:
    lines = [line.split() for line in (out / "log").read_text().splitlines()]
    return [
        Logged(pool, float(end), float(seconds), () if what == ["start"] else tuple(what))
        for end, pool, seconds, *what in lines
    ]


def pools(level: int) -> list[Pool]:
    """Return the pools of a level as a planner sees them, from the speeds alone."""
    cells = [rows for rows in ROWS.values() for _ in (MODELS if level else MODELS[:1])]
    blocks = [min(BLOCK, rows - first) for rows in cells for first in range(0, rows, BLOCK)]
    return [
        Pool(kind[0], kind[1], gpus, start_s / 60, tuple(row_s / 60 * rows for rows in blocks))
        for kind in LEVELS[level]
        for row_s, start_s, gpus in [SPEED[kind]]
    ]


def measure(log: Sequence[Logged], names: set[str]) -> float:
    """Return the seconds from the first start of an engine of these pools to their last row."""
    own = [one for one in log if one.pool in names]
    return max(one.end for one in own if one.rows) - min(one.begin for one in own)


@pytest.mark.parametrize("sizes", ["elastic", "fixed"])
def test_a_study_takes_as_long_as_planned(cluster: LocalCluster, tmp_path: Path, sizes: str) -> None:
    process = start(cluster, tmp_path, sizes)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    log, planned_s, jobs = read_log(tmp_path), 0.0, 0
    for level in range(len(LEVELS)):
        shelves = cut_level(pools(level), GPUS)
        played = replay(shelves, GPUS, elastic=sizes == "elastic")
        for shelf, minutes in zip(shelves, played.minutes, strict=True):
            names = {f"{pool.stage}-{pool.engine}" for pool in shelf.pools}
            assert measure(log, names) <= SLACK * minutes * 60, (names, said)
        planned_s, jobs = planned_s + played.wall * 60, jobs + len(shelves)
    assert planned_s >= 120 and said.count("jobs=1") == jobs
    rows = Counter((one.pool, row) for one in log for row in one.rows)
    assert set(rows.values()) == {1}
    first = min(float(line.split()[0]) for line in said.splitlines() if " published " in line)
    assert first < max(one.end for one in log if one.pool.startswith("sample"))  # beside the work


def test_a_killed_run_goes_on_and_makes_no_block_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    process = start(cluster, tmp_path, "elastic")
    deadline = time.monotonic() + 300
    while not (tmp_path / "log").is_file() or sum(bool(one.rows) for one in read_log(tmp_path)) < 60:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    process.kill()
    process.communicate()
    written = {(one.pool, row) for one in read_log(tmp_path) for row in one.rows}
    said, _ = (again := start(cluster, tmp_path, "elastic")).communicate(timeout=600)
    assert again.returncode == 0, said
    store = Store(tmp_path)
    for level in range(len(LEVELS)):
        for stage in stages_of(store, tmp_path, level):
            ids = store.require("labels", stage.partition).read(["question_id"])["question_id"].to_pylist()
            assert sorted(ids) == sorted(stage.row_ids().to_pylist())
    rows = Counter((one.pool, row) for one in read_log(tmp_path) for row in one.rows)
    # An actor that had slept when the driver died may not have written its block.
    assert written < rows.keys() and sum(n - 1 for n in rows.values()) <= GPUS * BLOCK
