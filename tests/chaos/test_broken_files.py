"""Files that are cut short, grow while they are read, or go before they are."""

from __future__ import annotations

import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from sgpu.scoring import day as scoring_day
from tests.chaos.night import Night, copied
from tests.chaos.onlooker import looked_at
from tests.chaos.outcome import DAY, Outcome, Tables, Wanted, outcome, summary
from tests.chaos.runs import INSTANTS
from tests.chaos.tally import Tally
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

DAY_FOLDER = f"dt={DAY}"
TIMES = max(2, INSTANTS // 4)


def night_of(world: World, logs: Path) -> Night:
    return Night(str(logs), world.night.model)


def readable_lines(path: Path, payload: bytes) -> int:
    """Complete lines in what is left of a packed file, found without our readers."""
    if path.suffix == ".gz":
        return zlib.decompressobj(wbits=31).decompress(payload).count(b"\n")
    stream, lines = pa.CompressedInputStream(pa.BufferReader(payload), "zstd"), 0
    try:
        while piece := stream.read(1):
            lines += piece == b"\n"
    except OSError:
        pass
    return lines


def ids_in(path: Path, lines: int | None = None) -> list[str]:
    """Request ids of SGPU's own rows in a whole file, or in its first lines."""
    if path.suffix == ".parquet":
        return [] if lines == 0 else pl.read_parquet(path)["request_id"].to_list()
    unpacked = pl.read_ndjson(path, infer_schema_length=None)["request_id"].to_list()
    return unpacked[:lines]


def without(wanted: Wanted, ids: set[str], **counts: Any) -> Wanted:
    """What is to be scored while these are not there."""
    scores = wanted.tables.scores.filter(~pl.col("request_id").is_in(sorted(ids)))
    return Wanted(Tables(scores, wanted.tables.quarantine), counts)


@pytest.mark.parametrize("name", ["sgpu-2.jsonl.gz", "sgpu-3.jsonl.zst", "sgpu-4.parquet"])
def test_of_a_file_that_is_cut_short_all_that_can_be_read_is_scored_and_the_rest_when_it_is_whole(
    clean_world: World, tally: Tally, tmp_path: Path, name: str
) -> None:
    whole = clean_world.logs / DAY_FOLDER / name
    payload = whole.read_bytes()
    for number in range(TIMES):
        started = time.monotonic()
        cut = Random(f"{name}/{number}").randrange(1, len(payload))
        logs, out = copied(clean_world.logs, tmp_path / f"{number}" / "logs"), tmp_path / f"{number}" / "out"
        (logs / DAY_FOLDER / name).write_bytes(payload[:cut])
        night = night_of(clean_world, logs)
        night.score(out)
        kept = 0 if name.endswith(".parquet") else readable_lines(whole, payload[:cut])
        missing = set(ids_in(whole)) - set(ids_in(whole, kept))
        partly = outcome_with_fault(out, without(clean_world.wanted, missing), "file_truncated")
        (logs / DAY_FOLDER / name).write_bytes(payload)
        night.score(out)
        found = outcome(out, clean_world.wanted, counts={"rows_in": clean_world.truth["rows_in"]})
        tally.add(f"cut short: {whole.suffixes[-1][1:]}", found, seconds=time.monotonic() - started, runs=2)
        assert partly.problems == () and found.problems == (), f"cut at byte {cut}"


def outcome_with_fault(out: Path, wanted: Wanted, fault: str) -> Outcome:
    """The outcome, where one file has this fault and stands in quarantine without a line."""
    assert summary(out)["accounting"]["file_faults"] == {fault: 1}
    quarantine = Tables.of(out).quarantine
    of_file = quarantine.filter(pl.col("line").is_null())
    assert of_file["reason"].to_list() == [fault]
    tables = Tables(wanted.tables.scores, pl.concat([wanted.tables.quarantine, of_file]))
    return outcome(out, Wanted(tables, wanted.counts))


def test_a_file_that_is_removed_between_listing_and_reading_is_missed_and_scored_when_it_is_back(
    clean_world: World, tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = scoring_day.take_snapshot
    for number in range(TIMES):
        started = time.monotonic()
        logs, out = copied(clean_world.logs, tmp_path / f"{number}" / "logs"), tmp_path / f"{number}" / "out"
        victim = Random(f"removed/{number}").choice(sorted((logs / DAY_FOLDER).glob("sgpu-*")))
        kept = victim.read_bytes()

        def then_gone(*given: Any, victim: Path = victim) -> Any:
            taken = snapshot(*given)
            victim.unlink()
            return taken

        night = night_of(clean_world, logs)
        with monkeypatch.context() as patch:
            patch.setattr(scoring_day, "take_snapshot", then_gone)
            night.score(out)
        missing = set(ids_in(clean_world.logs / DAY_FOLDER / victim.name))
        partly = outcome_with_fault(out, without(clean_world.wanted, missing), "file_missing")
        victim.write_bytes(kept)
        night.score(out)
        found = outcome(out, clean_world.wanted, counts={"rows_in": clean_world.truth["rows_in"]})
        tally.add("removed before it is read", found, seconds=time.monotonic() - started, runs=2)
        assert partly.problems == () and found.problems == ()


GROW = """
import sys, time
from pathlib import Path
source, target, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
left = {path.name: path.read_bytes() for path in sorted(source.iterdir())}
piece = max(sum(map(len, left.values())) // 300, 1)
while left:
    for name in list(left):
        with (target / name).open("ab") as file:
            file.write(left[name][:piece])
        left[name] = left[name][piece:]
        if not left[name]:
            del left[name]
        time.sleep(seconds / 300)
"""


@pytest.fixture
def growing(clean_world: World, tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Logs of which all files grow at once for some seconds, in pieces that end anywhere."""
    logs = tmp_path / "logs"
    (logs / DAY_FOLDER).mkdir(parents=True)
    command = [sys.executable, "-c", GROW, str(clean_world.logs / DAY_FOLDER), str(logs / DAY_FOLDER), "20"]
    process = subprocess.Popen(command)
    try:
        yield logs, process
    finally:
        process.kill()
        process.wait()


def test_files_that_grow_while_they_are_read_are_scored_as_far_as_they_were_and_in_the_end_to_the_end(
    clean_world: World,
    tally: Tally,
    tmp_path: Path,
    growing: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    logs, writer = growing
    started, runs, heights = time.monotonic(), 0, []
    night, out = night_of(clean_world, logs), tmp_path / "out"
    with looked_at(tmp_path) as report:
        while writer.poll() is None:
            if any((logs / DAY_FOLDER).iterdir()):
                night.score(out)
                runs += 1
                heights.append(Tables.of(out).scores.height)
        night.score(out)
    found = outcome(out, clean_world.wanted, counts={"rows_in": clean_world.truth["rows_in"]})
    seconds = time.monotonic() - started
    tally.add("grows while it is read", found, seconds=seconds, times=runs, runs=runs + 1)
    assert found.problems == () and report["problems"] == []
    assert len(set(heights)) > 2, "it did not grow between the runs"
