"""Object storage that answers with errors, late, or not to the end, for the logs and for the tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from sgpu.errors import SgpuError
from sgpu.storage.location import Location
from tests.chaos.faulty_proxy import COUNT, FAULTS
from tests.chaos.night import Night
from tests.chaos.outcome import DAY, Tables, compared
from tests.chaos.runs import INSTANTS
from tests.chaos.tally import Tally
from tests.chaos.world import World
from tests.object_store import ObjectStore

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
NAMES = {
    "refuse": "object storage answers 500",
    "deny": "object storage answers 500 after it has obeyed",
    "cut": "object storage breaks off its answers",
    "slow": "object storage is slow",
}
# Of the requests. A list that breaks off is not asked for again by delta-rs, and every run begins with some.
SHARES = {"refuse": 0.05, "deny": 0.05, "cut": 0.02, "slow": 0.1}
MOST_RUNS = 20


class Proxied:
    """``url`` leads to the storage over a proxy that spoils requests."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self.url = process, url

    @property
    def spoiled(self) -> int:
        with urllib.request.urlopen(self.url + COUNT) as reply:
            return int(reply.read())


@contextmanager
def faulty(backend: str, fault: str, seed: int) -> Iterator[Proxied]:
    command = [
        sys.executable,
        "-m",
        "tests.chaos.faulty_proxy",
        backend,
        fault,
        str(SHARES[fault]),
        str(seed),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Proxied(process, process.stdout.readline().strip())
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()


@pytest.fixture
def store(object_store: ObjectStore, small_world: World) -> ObjectStore:
    """With the logs in it."""
    Location.of(object_store.uri("logs")).upload(small_world.logs)
    return object_store


def tables(store: ObjectStore, out: str) -> Tables:
    options = {key.lower(): value for key, value in store.environment.items()}
    options |= {"aws_endpoint_url": store.url, "aws_allow_http": "true"}
    read = [
        pl.read_delta(store.uri(f"{out}/{name}"), storage_options=options)
        for name in ("scores", "quarantine")
    ]
    return Tables(*read)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_night_on_bad_object_storage_has_the_rows_of_a_good_one(
    small_world: World,
    tally: Tally,
    store: ObjectStore,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SGPU_CACHE", str(tmp_path / "cache"))
    for number in range(max(1, INSTANTS // 5)):
        started = time.monotonic()
        out, night = f"out-{number}", Night(store.uri("logs"), small_world.night.model)
        with faulty(store.url, fault, number) as proxied:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxied.url)
            runs = until_committed(night, store.uri(out))
            spoiled = proxied.spoiled
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        told = json.loads(Location.of(store.uri(f"{out}/days/{DAY}/summary.json")).read_bytes())["accounting"]
        found = compared(tables(store, out), told, small_world.wanted)
        seconds = time.monotonic() - started
        tally.add(NAMES[fault], found, seconds=seconds, times=spoiled, runs=runs)
        assert found.problems == ()
        assert spoiled > 3


def until_committed(night: Night, out: str) -> int:
    """How many runs it took; each that fails says what is wrong."""
    told: Counter[str] = Counter()
    for runs in range(1, MOST_RUNS + 1):
        try:
            night.score(out)
        except SgpuError as error:
            told[str(error)] += 1
        else:
            return runs
    raise AssertionError(f"not done after {MOST_RUNS} runs: {told}")
