"""The textfile, read back by the client's own parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.watch import Sketch, Verdict
from sgpu.watch.metrics import day_metrics
from sgpu.watch.prometheus import TEXTFILE, day_of, metrics_text, write_newest
from sgpu.watch.verdict import Finding
from tests.object_store import ObjectStore
from tests.watch.made_scores import sketch

ACCOUNTING = Accounting(
    rows_in=120, scored_rows=100, quarantined=20, requests_scored=100, files=2,
    by_reason={"refusal": 15, "not_json": 5}, file_faults={"file_truncated": 1},
    no_answer_by_kind={"other_span": 7}, nested=2,
)  # fmt: skip
VERDICT = Verdict(
    "yellow",
    (
        Finding("yellow", "psi", "", reference="history", effect=0.2, p=0.001),
        Finding("green", "psi", "", reference="history", effect=0.05, p=0.4, route="a"),
        Finding("green", "psi", "not tested", reference="training"),
    ),
)


def samples(today: Sketch) -> dict[tuple[str, tuple[str, ...]], float]:
    text = metrics_text(today, ACCOUNTING, VERDICT, finished=1.5e9, day=1.4e9, seconds=12.5).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_file_holds_the_day() -> None:
    found = samples(sketch(100, 1))
    assert found["sgpu_score_level", ()] == 1 and found["sgpu_score_tested", ()] == 1
    assert found["sgpu_score_scores", ()] == 100
    assert found["sgpu_score_scoreable_share", ()] == 100 / 115
    assert found["sgpu_score_quarantined_rows", ("refusal",)] == 15
    assert found["sgpu_score_file_faults", ("file_truncated",)] == 1
    assert found["sgpu_score_no_answer_rows", ("other_span",)] == 7
    assert found["sgpu_score_nested", ()] == 2
    assert found["sgpu_score_finished_timestamp_seconds", ()] == 1.5e9
    assert found["sgpu_score_route_scores", ("m", "r")] == 100
    assert found["sgpu_score_largest_psi_history", ()] == 0.2


def test_a_day_that_was_not_tested_has_no_level() -> None:
    text = metrics_text(sketch(100, 1), ACCOUNTING, Verdict("grey"), finished=1.5e9, day=1.4e9).decode()
    assert "sgpu_score_level" not in text and "\nsgpu_score_tested 0.0\n" in text


def test_what_is_not_known_is_not_there() -> None:
    found = samples(Sketch())
    assert ("sgpu_score_mean_probability", ()) not in found
    assert ("sgpu_score_largest_psi_training", ()) not in found
    assert found["sgpu_score_scores", ()] == 0


def test_hostile_names_stay_inside_their_label() -> None:
    name = 'a"} 1\nsgpu_score_level 0\n\\'
    found = samples(sketch(40, 1, models=(name,), routes=(None,)))
    assert found["sgpu_score_level", ()] == 1
    assert ("sgpu_score_route_scores", (name, "")) in found


def test_the_same_day_gives_the_same_bytes() -> None:
    today = sketch(60, 2, routes=("b", "a", None))
    one, other = (metrics_text(today, ACCOUNTING, VERDICT, finished=1.0, day=0.0) for _ in range(2))
    assert one == other


def text_of(day: float, rows: int = 30) -> bytes:
    return metrics_text(sketch(rows, 1), ACCOUNTING, VERDICT, finished=1.0, day=day)


@pytest.mark.parametrize("day", [0.0, 1.7951328e9])
def test_a_file_says_which_day_it_is_of(day: float) -> None:
    assert day_of(text_of(day)) == day


def test_a_later_day_takes_the_place_of_the_one_before_and_an_earlier_one_does_not(tmp_path: Path) -> None:
    out, file = Location.of(tmp_path), tmp_path / TEXTFILE
    for day in (2e9, 1.9e9):
        write_newest(out, text_of(day))
        assert day_of(file.read_bytes()) == 2e9
    write_newest(out, text_of(2.1e9))
    assert day_of(file.read_bytes()) == 2.1e9
    assert [entry.name for entry in tmp_path.iterdir()] == [TEXTFILE]


def test_the_same_day_scored_again_takes_its_own_place(tmp_path: Path) -> None:
    for rows in (30, 40):
        write_newest(Location.of(tmp_path), text_of(2e9, rows))
    assert (tmp_path / TEXTFILE).read_bytes() == text_of(2e9, 40)


def test_a_file_that_says_no_day_is_replaced(tmp_path: Path) -> None:
    (tmp_path / TEXTFILE).write_bytes(b"\xff half a file")
    write_newest(Location.of(tmp_path), text_of(2e9))
    assert (tmp_path / TEXTFILE).read_bytes() == text_of(2e9)


def test_the_newest_day_stands_in_object_storage_too(object_store: ObjectStore) -> None:
    out = Location.of(object_store.uri("scores"))
    for day in (2e9, 1.9e9):
        write_newest(out, text_of(day))
    assert (out / TEXTFILE).read_bytes() == text_of(2e9)


def test_metrics_say_how_champion_and_challenger_did_where_labels_are() -> None:
    values = day_metrics(sketch(500, 3, labelled=1.0, challenger_noise=1.0), ACCOUNTING, VERDICT)
    assert values["champion_brier"] < values["challenger_brier"]
    assert "champion_brier" not in day_metrics(sketch(500, 3), ACCOUNTING, VERDICT)
