"""The trail of past days: gaps stay gaps, what is broken is named, and nothing stops the night."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sgpu.errors import DataError
from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch.history import PastDay, read_past_days, summary_place
from sgpu.watch.verdict import Verdict
from tests.object_store import ObjectStore
from tests.watch.made_scores import sketch

TODAY = date(2026, 11, 20)


def summary(day: date, **changes: Any) -> dict[str, Any]:
    accounting = Accounting(rows_in=30, scored_rows=30, requests_scored=30)
    content = {
        "format": 1,
        "date": day.isoformat(),
        "sketch": sketch(30, day.day).to_json(),
        "accounting": accounting.to_json(),
        "verdict": Verdict("green").to_json(),
    }
    return {**content, **changes}


def write(out: Path, day: date, content: object) -> None:
    file = summary_place(Location.of(out), day).local
    file.parent.mkdir(parents=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def test_days_come_oldest_first_with_gaps_where_there_was_no_run(tmp_path: Path) -> None:
    for number in (19, 3, 11):
        write(tmp_path, date(2026, 11, number), summary(date(2026, 11, number)))
    trail = read_past_days(Location.of(tmp_path), TODAY)
    assert [past.day.day for past in trail.days] == [3, 11, 19]
    assert trail.sketches[0] == sketch(30, 3) and trail.accountings[0].rows_in == 30
    assert trail.unreadable == ()


def test_today_and_days_beyond_the_window_do_not_count(tmp_path: Path) -> None:
    for day in (TODAY, date(2026, 10, 23), date(2026, 10, 22)):
        write(tmp_path, day, summary(day))
    assert [past.day for past in read_past_days(Location.of(tmp_path), TODAY).days] == [date(2026, 10, 23)]
    assert len(read_past_days(Location.of(tmp_path), TODAY, days=29).days) == 2


def test_a_summary_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, date(2026, 11, 17), "{ half a")
    write(tmp_path, date(2026, 11, 18), summary(date(2026, 11, 18), sketch={"format": 99}))
    write(tmp_path, date(2026, 11, 19), summary(date(2026, 11, 19)))
    write(tmp_path, date(2026, 11, 16), summary(date(2026, 11, 1)))
    write(tmp_path, date(2026, 11, 15), summary(date(2026, 11, 15), format=2))
    write(tmp_path, date(2026, 11, 14), [])
    trail = read_past_days(Location.of(tmp_path), TODAY)
    assert len(trail.days) == 1
    assert [text[:10] for text in trail.unreadable] == [f"2026-11-{day}" for day in range(14, 19)]
    assert "has format 2, this version reads 1" in trail.unreadable[1]


def test_text_of_a_broken_summary_is_not_shown_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, date(2026, 11, 19), summary(date(2026, 11, 19), date="\u202e<script>"))
    (text,) = read_past_days(Location.of(tmp_path), TODAY).unreadable
    assert text.isascii() and len(text) < 250


def test_without_any_past_the_trail_is_empty(tmp_path: Path) -> None:
    assert read_past_days(Location.of(tmp_path / "absent"), TODAY).days == ()


def test_the_trail_is_read_from_object_storage(object_store: ObjectStore) -> None:
    out = Location.of(object_store.uri("scores"))
    summary_place(out, date(2026, 11, 19)).write_bytes(json.dumps(summary(date(2026, 11, 19))).encode())
    assert [past.day.day for past in read_past_days(out, TODAY, days=3).days] == [19]


@pytest.mark.parametrize(
    "change", [{"sketch": None}, {"date": 3}, {"verdict": {"level": "blue", "findings": []}}]
)
def test_a_day_from_something_else_is_a_data_error(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="score the day again"):
        PastDay.of(summary(TODAY, **change))
