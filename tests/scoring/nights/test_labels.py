"""What people say of answers: kept beside the scores, and joined whenever a day is judged."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from sgpu.errors import DataError
from sgpu.report.daily import update_daily_page
from sgpu.runtime.progress import Progress
from sgpu.scoring import labels as labels_module
from sgpu.scoring.day import score_days
from sgpu.scoring.labels import labels_of, take_in
from sgpu.scoring.plan import day_lock
from sgpu.storage.location import Location
from tests.scoring.nights import nights
from tests.scoring.nights.nights import DAY, SCORER, label, labelled, night, row, rows, scores, write

LONG_AGO = DAY - timedelta(days=10)


def verdicts(place: Path) -> pl.DataFrame:
    return pl.read_delta(str(place / "out" / "verdicts")).sort("time", "request_id")


def a_night_of(place: Path, file: str | None, **other: Any) -> None:
    asked = nights.settings(place, labels=file, max_bad=1, **other)
    score_days(asked, scorer=SCORER, on_summary=update_daily_page)


def log_two_days(place: Path) -> None:
    """Write requests of two days, of which the earlier one is scored."""
    write(place / "logs", "a.jsonl", rows(range(10), LONG_AGO), LONG_AGO)
    write(place / "logs", "a.jsonl", rows(range(20, 30)))
    night(place, LONG_AGO)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Location]:
    """Files of scores in the order in which their ids are read."""
    found: list[Location] = []
    read = labels_module.read_columns

    def counted(file: Location, *given: Any) -> Any:
        found.extend([file] if "/scores/" in file.path else [])
        return read(file, *given)

    monkeypatch.setattr(labels_module, "read_columns", counted)
    return found


def test_labels_are_a_table_of_their_own_and_join_those_of_the_logs(place: Path) -> None:
    write(place / "logs", "a.jsonl", [*rows(range(3)), row("y", ["a", "b"], label=0)])
    file = nights.labels(
        place, label(0, 1), {"request_id": "other", "label": 0}, {"request_id": "y", "label": 1}
    )
    night(place, labels=file)
    assert labelled(place) == {"labelled": 2, "right": 2}
    assert verdicts(place).select("request_id", "model", "label", "source").rows() == [
        ("other", None, 0, file), ("q00000", None, 1, file), ("y", None, 1, file),
    ]  # fmt: skip
    assert dict(scores(place).select("request_id", "label").rows())["y"] == 0  # as the log said
    assert nights.summary(place)["labels"]["conflicts"] == 1


def test_labels_that_come_later_are_in_the_summary_of_the_day_and_nothing_is_scored(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(10)))
    first = night(place)
    version = nights.versions(place)
    result = night(place, labels=nights.labels(place, *(label(i, i % 2) for i in range(8))))
    assert (result.status, result.accounting) == ("unchanged", first.accounting)
    assert labelled(place) == {"labelled": 8, "right": 4} and nights.versions(place) == version
    metrics = (place / "out" / "days" / str(DAY) / "metrics.prom").read_text()
    assert "sgpu_score_labelled 8.0" in metrics and "sgpu_score_right_share 0.5" in metrics


def test_a_run_without_labels_keeps_those_of_the_day(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(10)))
    night(place, labels=nights.labels(place, *(label(i, 1) for i in range(8))))
    write(place / "logs", "b.jsonl", rows(range(10, 12)))
    assert night(place).status == "committed"
    assert labelled(place) == {"labelled": 8, "right": 8}


def test_labels_reach_a_day_that_the_run_does_not_look_at(place: Path) -> None:
    log_two_days(place)
    page = place / "out" / "days" / str(LONG_AGO) / "index.html"
    before = page.stat().st_mtime_ns
    a_night_of(place, nights.labels(place, *(label(i, i % 2) for i in range(6)), label(21, 1), label(99, 1)))
    assert labelled(place, LONG_AGO) == {"labelled": 6, "right": 3}
    assert labelled(place) == {"labelled": 1, "right": 1}
    assert page.stat().st_mtime_ns > before
    assert nights.summary(place)["labels"]["nowhere"] == 1
    before = page.stat().st_mtime_ns
    a_night_of(place, None)
    assert page.stat().st_mtime_ns == before


def test_a_day_that_another_run_is_at_is_left_to_the_next_run(place: Path) -> None:
    log_two_days(place)
    night(place)
    files = [place / "out" / "days" / str(day) / "summary.json" for day in (LONG_AGO, DAY)]
    before = [file.read_bytes() for file in files]
    asked, shown = (
        nights.settings(place, labels=nights.labels(place, label(1, 1), label(99, 1))),
        io.StringIO(),
    )
    with day_lock(asked, LONG_AGO), day_lock(asked, DAY):
        score_days(asked, Progress(Console(file=shown, width=200)), scorer=SCORER)
    assert f"another run is at {LONG_AGO}, {DAY}; the next run judges" in shown.getvalue()
    assert [file.read_bytes() for file in files] == before
    a_night_of(place, None)
    assert labelled(place, LONG_AGO)["labelled"] == 1
    assert nights.summary(place)["labels"]["nowhere"] == 1


def test_a_run_that_dies_before_all_days_are_reached_is_gone_on_with(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_two_days(place)
    with monkeypatch.context() as patch:
        patch.setattr("sgpu.scoring.summary.label_again", None)
        with pytest.raises(TypeError):
            a_night_of(place, nights.labels(place, label(1, 1)))
    assert labelled(place, LONG_AGO)["labelled"] == 0
    a_night_of(place, None)
    assert labelled(place, LONG_AGO)["labelled"] == 1


def test_a_run_that_dies_before_the_page_of_another_day_leaves_it_to_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_two_days(place)
    night(place)
    page = place / "out" / "days" / str(LONG_AGO) / "index.html"
    before = page.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr("sgpu.scoring.summary.track", None)
        with pytest.raises(TypeError):
            a_night_of(place, nights.labels(place, label(1, 1)))
    assert labelled(place, LONG_AGO)["labelled"] == 1 and page.stat().st_mtime_ns == before
    a_night_of(place, None)
    assert page.stat().st_mtime_ns > before


def test_a_label_that_came_before_its_request_counts_when_it_comes(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    night(place, labels=nights.labels(place, label(7, 1)))
    write(place / "logs", "b.jsonl", rows([7]))
    night(place)
    assert labelled(place) == {"labelled": 1, "right": 1}


def test_a_contradiction_stops_no_night_and_the_last_counts(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    night(place, labels=nights.labels(place, label(1, 0), label(2, 1), label(1, 1)))
    assert labelled(place) == {"labelled": 2, "right": 2}
    night(place, labels=nights.labels(place, label(2, 0), name="later.jsonl"))
    assert labelled(place) == {"labelled": 2, "right": 1}
    assert (
        nights.summary(place)["labels"]["conflicts"] == 1
    )  # of request 2; what a file takes back is not kept


def test_the_same_file_again_changes_nothing_even_after_another(place: Path) -> None:
    write(place / "logs", "a.jsonl", rows(range(5)))
    first = nights.labels(place, label(1, 0), label(2, 0))
    night(place, labels=first)
    before = verdicts(place)
    night(place, labels=first)
    assert verdicts(place).equals(before)
    night(place, labels=nights.labels(place, label(1, 1), label(2, 0), name="b.jsonl"))
    after = verdicts(place)
    assert after.height == 3  # only what is new
    night(place, labels=first)
    assert verdicts(place).equals(after) and labelled(place) == {"labelled": 2, "right": 1}


@pytest.mark.parametrize(
    "line",
    [
        '{"request_id": "x", "label": 2}',
        '{"request_id": 1, "label": 1}',
        '{"request_id": "\\ud800x", "label": 1}',
        "{",
    ],
)
def test_a_label_that_is_none_is_refused_with_its_row(place: Path, line: str) -> None:
    write(place / "logs", "a.jsonl", rows(range(2)))
    (place / "labels.jsonl").write_text(f'{{"request_id": "x", "label": 1}}\n{line}\n')
    with pytest.raises(DataError, match="line 2: "):
        night(place, labels=str(place / "labels.jsonl"))
    assert not (place / "out" / "scores").exists()


def test_the_ids_of_a_day_are_read_once_for_labels_of_other_days(place: Path, opened: list[Location]) -> None:
    write(place / "logs", "a.jsonl", rows(range(10)))
    night(place, labels=nights.labels(place, label(1, 1)))
    opened.clear()
    a_night_of(place, nights.labels(place, label(99, 1), name="other.jsonl"))
    assert opened
    opened.clear()
    a_night_of(place, None)
    assert opened == []
    a_night_of(place, nights.labels(place, label(2, 1), name="ours.jsonl"))
    assert labelled(place)["labelled"] == 2


def test_a_label_may_name_the_model_that_it_is_about(place: Path) -> None:
    both = [{**row("x", ["a", "b"]), "model": name} for name in ("m", "other")]
    write(place / "logs", "a.jsonl", [*both, *({**one, "request_id": "y"} for one in both)])
    lines = [{"request_id": "x", "label": 1}, {"request_id": "y", "label": 0, "model": "other"}]
    night(place, labels=nights.labels(place, *lines))
    groups = {one["model"]: one["counts"] for one in nights.summary(place)["sketch"]["groups"]}
    assert [(groups[name]["labelled"], groups[name].get("right", 0)) for name in ("m", "other")] == [
        (1, 1),
        (2, 1),
    ]
    night(place, labels=nights.labels(place, {"request_id": "x", "label": 0, "model": "m"}, name="b.jsonl"))
    groups = {one["model"]: one["counts"] for one in nights.summary(place)["sketch"]["groups"]}
    assert [groups[name].get("right", 0) for name in ("m", "other")] == [0, 1]


def test_the_days_of_a_label_are_looked_for_in_the_files_that_can_hold_it(
    place: Path, opened: list[Location]
) -> None:
    for back in range(3):
        day = DAY - timedelta(days=back)
        write(place / "logs", "a.jsonl", rows(range(back * 64, back * 64 + 64), day), day)
        night(place, day)
    out = Location.of(place / "out")
    take_in(out, nights.labels(place, label(70, 1)))
    opened.clear()
    assert labels_module.days_of(out, labels_of(out), 0) == ([DAY - timedelta(days=1)], 0)
    assert len(opened) == 3 and nights.arrow(place).num_rows == 192  # of 24 files one a day
