"""A night over constructed logs comes to what the logs were made of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.constructed_logs.__main__ import write_logs
from bench.constructed_logs.settings import LogSettings
from bench.constructed_logs.truth import ids_sha256
from sgpu.scoring.outcome import DayResult
from tests.scoring.nights.nights import (
    DAY,
    everywhere_once,
    model_folder,
    night,
    quarantine,
    scores,
    versions,
)


class Night(NamedTuple):
    place: Path
    result: DayResult
    truth: dict[str, Any]
    planted: list[dict[str, Any]]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Night:
    place = tmp_path_factory.mktemp("night")
    model_folder(place / "model")
    truth = write_logs(LogSettings(rows=4000, days=(DAY,), bad=0.2, duplicates=0.05), place)["days"][str(DAY)]
    planted = [json.loads(line) for line in (place / "planted.jsonl").read_text().splitlines()]
    return Night(place, night(place, late_days=0, bucket_rows=512), truth, planted)


def test_every_count_is_that_of_the_logs(scored: Night) -> None:
    assert scored.result.accounting is not None
    found = scored.result.accounting.to_json()
    counts = ("rows_in", "scored_rows", "quarantined", "duplicates", "already", "other_day", "no_answer")
    for name in (*counts, "prompts", "requests_scored", "by_reason", "files"):
        assert found[name] == scored.truth[name], name


def test_the_table_holds_the_requests_that_can_be_scored_and_no_other(scored: Night) -> None:
    table = scores(scored.place)
    ids = [one for one in table["request_id"] if not one.startswith("group-")]
    assert ids_sha256(ids) == scored.truth["request_ids_sha256"]
    assert len(table) == scored.truth["requests_scored"]


def test_statuses_and_labels_are_those_of_the_logs(scored: Night) -> None:
    table = scores(scored.place)
    for column in ("status", "label"):
        counts = {str(value): n for value, n in table.group_by(column).len().rows() if value is not None}
        assert counts == scored.truth[{"status": "by_status", "label": "labels"}[column]]


def test_the_quarantine_names_file_line_and_reason_of_every_bad_row(scored: Night) -> None:
    rows = quarantine(scored.place).select("file", "line", "reason").rows()
    planted = [one for one in scored.planted if one["fate"] == "quarantined"]
    assert sorted(rows) == sorted((one["file"], one["line"], one["reason"]) for one in planted)


def test_logs_that_come_later_are_added_to_the_day(scored: Night, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(scored.place, place)
    late = write_logs(LogSettings(rows=500, days=(DAY,), seed=1, bad=0), tmp_path / "late")["days"][str(DAY)]
    for file in (tmp_path / "late" / "logs" / f"dt={DAY}").iterdir():
        shutil.copy(file, place / "logs" / f"dt={DAY}" / f"late-{file.name}")
    before = versions(place)
    result = night(place, late_days=0, bucket_rows=512)
    assert result.accounting is not None
    assert result.accounting.requests_scored == late["requests_scored"]
    # A second delivery of what is committed may count as one or as the other.
    known = result.accounting.already + result.accounting.duplicates
    assert known == scored.truth["scored_rows"] + scored.truth["duplicates"] + late["duplicates"]
    assert versions(place) == before + 1
    everywhere_once(place)
