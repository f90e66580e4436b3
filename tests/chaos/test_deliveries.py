"""Deliveries that repeat, come late or contradict each other, and clocks that are wrong."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import polars as pl
import pytest

from tests.chaos.night import Night, copied
from tests.chaos.outcome import DAY, Tables, Wanted, compared, outcome, summary
from tests.chaos.runs import INSTANTS
from tests.chaos.tally import Tally
from tests.chaos.test_extreme_texts import row
from tests.chaos.world import World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

TIMES = max(2, INSTANTS // 4)
NEXT = DAY + timedelta(days=1)


def test_a_day_that_is_delivered_again_in_another_order_and_on_the_next_day_is_scored_once(
    clean_world: World, tally: Tally, tmp_path: Path
) -> None:
    for number in range(TIMES):
        started, draw = time.monotonic(), Random(f"deliveries/{number}")
        logs, out = copied(clean_world.logs, tmp_path / f"{number}" / "logs"), tmp_path / f"{number}" / "out"
        plain = sorted((logs / f"dt={DAY}").glob("*.jsonl"))
        again = [line for file in plain for line in file.read_bytes().splitlines() if draw.random() < 0.7]
        for day in (DAY, NEXT):
            draw.shuffle(again)
            (logs / f"dt={day}").mkdir(exist_ok=True)
            (logs / f"dt={day}" / "again.jsonl").write_bytes(b"".join(line + b"\n" for line in again))
        night = Night(str(logs), clean_world.night.model, {"late_days": 2})
        for day in (DAY, NEXT, DAY):
            night.score(out, day)
        # What is told of the second day is only that all of it was there.
        told = [summary(out, day)["accounting"] for day in (DAY, NEXT)]
        found = compared(Tables.of(out), told[0], clean_world.wanted, {})
        tally.add("deliveries repeated", found, seconds=time.monotonic() - started, runs=3)
        assert found.problems == ()
        assert told[0]["requests_scored"] == clean_world.truth["requests_scored"]
        assert told[1]["requests_scored"] == 0 and told[1]["already"] > 0


def test_the_folder_of_a_day_decides_where_clocks_are_wrong(
    clean_world: World, tally: Tally, tmp_path: Path
) -> None:
    """Times of files and of rows are years off; the rows are the same but for their time."""
    started = time.monotonic()
    logs, out = copied(clean_world.logs, tmp_path / "logs"), tmp_path / "out"
    for number, file in enumerate(sorted((logs / f"dt={DAY}").iterdir())):
        if file.name == "sgpu-0.jsonl":
            file.write_bytes(skewed(file.read_bytes()))
        moment = datetime(1971 + 30 * (number % 4), 1, 1, tzinfo=UTC).timestamp()
        os.utime(file, (moment, moment))
    Night(str(logs), clean_world.night.model).score(out)
    wanted, tables = clean_world.wanted.tables, Tables.of(out)
    timeless = [Tables(one.scores.drop("timestamp"), one.quarantine) for one in (tables, wanted)]
    counts = summary(out)["accounting"]
    found = compared(timeless[0], counts, Wanted(timeless[1], clean_world.wanted.counts))
    tally.add("clocks wrong, days in folders", found, seconds=time.monotonic() - started)
    assert found.problems == ()
    assert tables.scores["timestamp"].dt.year().n_unique() > 2


def skewed(lines: bytes) -> bytes:
    """Each row's own time, some years off."""
    rows = [json.loads(line) for line in lines.splitlines()]
    for number, one in enumerate(rows):
        one["timestamp"] = one["timestamp"].replace("2026", str(2016 + number % 30))
    return b"".join(json.dumps(one).encode() + b"\n" for one in rows)


def test_without_folders_each_row_is_scored_on_the_day_of_its_clock_and_an_impossible_one_on_none(
    models: list[Path], tally: Tally, tmp_path: Path
) -> None:
    started, draw = time.monotonic(), Random("clocks")
    days = [DAY + timedelta(days=n) for n in range(-2, 3)]
    midnight = [f"{day}T{clock}Z" for day in days for clock in ("00:00:00", "12:30:00", "23:59:59.999999")]
    # The same instants in other time zones fall on another day by the local calendar, but not by UTC.
    zones = [f"{DAY}T00:30:00+14:00", f"{DAY}T23:30:00-11:00", f"{NEXT}T00:00:00+00:00"]
    never = ["1970-01-01T00:00:00Z", "2014-12-31T23:59:59Z", "2099-01-01T00:00:00Z", "9998-12-31T23:59:59Z"]
    times = [*midnight, *zones, *never]
    rows = [
        {**row(f"q{number}", ["a", f"b{number}", "a"]), "timestamp": moment}
        for number, moment in enumerate(times)
    ]
    draw.shuffle(rows)
    (tmp_path / "logs").mkdir()
    text = "".join(json.dumps(one) + "\n" for one in [*rows, *rows[:5]])
    (tmp_path / "logs" / "flat.jsonl").write_text(text)
    night, out = Night(str(tmp_path / "logs"), str(models[0]), {"late_days": 2}), tmp_path / "out"
    os.utime(tmp_path / "logs" / "flat.jsonl", (datetime(2026, 11, 23, tzinfo=UTC).timestamp(),) * 2)
    for _ in range(2):
        for day in days:
            night.score(out, day)
    tables = Tables.of(out)
    ids = [one["request_id"] for one in rows if one["timestamp"] not in never]
    problems = []
    for day in days:
        counts = summary(out, day)["accounting"]
        problems += compared(tables, counts, Wanted(tables, {"rows_in": len(rows) + 5})).problems
    by_clock = tables.scores["timestamp"].dt.date().cast(pl.String)
    right = bool((by_clock == tables.scores["date"]).all())
    wanted = Wanted(Tables(pl.DataFrame({"request_id": ids}), tables.quarantine), {})
    found = compared(tables, summary(out)["accounting"], wanted)
    tally.add(
        "clocks wrong, no folders",
        type(found)(found.rows_in * len(days), found.lost, found.doubled, right, ()),
        seconds=time.monotonic() - started,
        runs=2 * len(days),
    )
    assert problems == [] and right and set(tables.ids) == set(ids) and max(tables.ids.values()) == 1
    assert set(tables.quarantine["reason"].to_list()) == {"clock_out_of_range"}


def test_of_answers_that_contradict_each_other_none_is_scored_and_the_first_stays_if_it_is_committed(
    clean_world: World, tally: Tally, tmp_path: Path
) -> None:
    started = time.monotonic()
    logs, out = copied(clean_world.logs, tmp_path / "logs"), tmp_path / "out"
    night = Night(str(logs), clean_world.night.model)
    night.score(out)
    rows = [json.loads(line) for line in (logs / f"dt={DAY}" / "sgpu-1.jsonl").read_bytes().splitlines()]
    for one in rows:
        one["samples"][0]["text"] = "something else"
    (logs / f"dt={DAY}" / "liar.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    night.score(out)
    found = outcome(out, clean_world.wanted, counts={"quarantined": len(rows)})
    problems = [one for one in found.problems if one != "other quarantine"]
    same = Tables.of(out).canonical()[0] == clean_world.wanted.tables.canonical()[0]
    tally.add(
        "contradictions delivered late",
        type(found)(found.rows_in, found.lost, found.doubled, same, ()),
        seconds=time.monotonic() - started,
        times=len(rows),
        runs=2,
    )
    assert problems == [] and same
