"""A hundred thousand lines that are no rows, between rows that are."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest

from sgpu.logs.budget import REJECTED_ROWS
from tests.chaos.malformed import malformed
from tests.chaos.night import Night, construct, copied
from tests.chaos.outcome import DAY, Tables, Wanted, outcome, summary
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LINES = 100_000
A_FILE = REJECTED_ROWS // 10  # so that each rejected row stands in quarantine by itself
FILES = f"dt={DAY}/malformed-"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """A sound line of each kind, several times; their ids are in no other log."""
    folder = tmp_path_factory.mktemp("records")
    construct(folder, rows=250, seed=99, bad=0, duplicates=0)
    plain = sorted((folder / "logs").rglob("*.jsonl"))
    return [line for file in plain for line in file.read_bytes().splitlines()[:20]]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_malformed_line_is_lost_and_none_harms_a_sound_row(
    small_world: World, tally: Tally, tmp_path: Path, records: list[bytes], seed: int
) -> None:
    lines = list(malformed(records, LINES // 2, seed))
    logs, out = copied(small_world.logs, tmp_path / "logs"), tmp_path / "out"
    for number, start in enumerate(range(0, len(lines), A_FILE)):
        text = b"".join(line.raw + b"\n" for line in lines[start : start + A_FILE])
        (logs / f"{FILES}{number:03d}.jsonl").write_bytes(text)
    started = time.monotonic()
    night = Night(str(logs), small_world.night.model, {"bucket_rows": 4096, "split_mb": 4})
    night.score(out)
    tables, counts = Tables.of(out), summary(out)["accounting"]
    ours = pl.col("file").str.starts_with(FILES)
    refused = set(tables.quarantine.filter(ours).select("file", "line").rows())
    hopeless = {
        (f"{FILES}{n // A_FILE:03d}.jsonl", n % A_FILE + 1)
        for n, line in enumerate(lines)
        if line.hopeless and not line.blank
    }
    assert hopeless <= refused
    assert counts["rows_in"] >= small_world.truth["rows_in"] + len(lines)
    assert not tables.quarantine["detail"].str.contains("unexpected").any()
    # Of the lines that stayed sound nobody but the readers can say how many there are.
    known = list(small_world.wanted.tables.ids)
    sound = Tables(tables.scores.filter(pl.col("request_id").is_in(known)), tables.quarantine.filter(~ours))
    assert sound.canonical() == small_world.wanted.tables.canonical()
    again = tmp_path / "again"
    night.score(again, split_mb=0.3)
    found = outcome(again, Wanted(tables, counts), counts=counts)
    tally.add(
        "malformed lines", found, seconds=time.monotonic() - started, times=len(lines), note="twice each"
    )
    assert found.problems == ()
