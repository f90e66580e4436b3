"""The page on disk: from the summaries that are there, whole or not at all."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from sgpu.errors import DataError
from sgpu.report.daily import update_daily_page
from sgpu.report.daily.page import write_daily_page
from sgpu.storage.location import Location
from sgpu.watch.history import summary_place
from tests.object_store import ObjectStore
from tests.report.daily.made_days import TODAY, summary
from tests.watch.made_scores import sketch


def fill(out: Location) -> None:
    for back in (0, 1, 4):
        day = TODAY - timedelta(days=back)
        place = summary_place(out, day)
        place.parent.make_folder()
        place.write_bytes(json.dumps(summary(day, sketch(100, back))).encode())


def test_the_page_stands_beside_its_summary_and_shows_the_days_before(tmp_path: Path) -> None:
    out = Location.of(tmp_path)
    fill(out)
    page = write_daily_page(out, TODAY)
    assert page.local == tmp_path / "days" / "2026-11-20" / "index.html"
    assert "2 of the 28 days before have a run" in page.local.read_text()
    assert sorted(file.name for file in page.local.parent.iterdir()) == ["index.html", "summary.json"]


def test_a_page_that_is_written_again_is_the_same(tmp_path: Path) -> None:
    fill(Location.of(tmp_path))
    one = write_daily_page(Location.of(tmp_path), TODAY).local.read_bytes()
    assert write_daily_page(Location.of(tmp_path), TODAY).local.read_bytes() == one


@pytest.mark.parametrize("left", [None, b"of the summary before"])
def test_a_page_that_a_killed_run_left_missing_or_old_is_written_and_then_left_alone(
    tmp_path: Path, left: bytes | None
) -> None:
    out = Location.of(tmp_path)
    fill(out)
    page = write_daily_page(out, TODAY).local
    content = page.read_bytes()
    page.unlink()
    if left is not None:
        page.write_bytes(left)
        summary_time = summary_place(out, TODAY).local.stat().st_mtime_ns
        os.utime(page, ns=(summary_time - 1, summary_time - 1))
    update_daily_page(out, TODAY)
    assert page.read_bytes() == content
    page.write_bytes(b"younger than the summary")
    update_daily_page(out, TODAY)
    assert page.read_bytes() == b"younger than the summary"


def test_the_page_looks_back_as_far_as_the_verdict_did(tmp_path: Path) -> None:
    fill(Location.of(tmp_path))
    place = summary_place(Location.of(tmp_path), TODAY)
    content = json.loads(place.read_bytes())
    content["thresholds"]["days"] = 3
    place.write_bytes(json.dumps(content).encode())
    text = write_daily_page(Location.of(tmp_path), TODAY).local.read_text()
    assert "1 of the 3 days before have a run" in text


def test_it_is_written_to_object_storage(object_store: ObjectStore) -> None:
    out = Location.of(object_store.uri("scores"))
    fill(out)
    assert b"20 November 2026" in write_daily_page(out, TODAY).read_bytes()


def test_a_day_that_was_not_scored_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="score 2026-11-20 first"):
        write_daily_page(Location.of(tmp_path), TODAY)


def test_a_summary_that_is_no_json_is_a_data_error(tmp_path: Path) -> None:
    fill(Location.of(tmp_path))
    summary_place(Location.of(tmp_path), TODAY).write_bytes(b"{ half")
    with pytest.raises(DataError, match=r"cannot be read .*; score 2026-11-20 again"):
        write_daily_page(Location.of(tmp_path), TODAY)
    assert not (tmp_path / "days" / "2026-11-20" / "index.html").exists()
