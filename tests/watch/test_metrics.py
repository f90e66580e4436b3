"""A day in Prometheus's format and in MLflow."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sgpu.logs.accounting import Accounting
from sgpu.storage.location import Location
from sgpu.tracking import open_tracker
from sgpu.watch.metrics import (
    TEXTFILE,
    day_metrics,
    log_to_mlflow,
    metrics_text,
    read_day_start,
    write_newest,
)
from sgpu.watch.sketch import Sketch
from sgpu.watch.verdict import Finding, Verdict
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
    assert read_day_start(text_of(day)) == day


def test_a_later_day_takes_the_place_of_the_one_before_and_an_earlier_one_does_not(tmp_path: Path) -> None:
    out, file = Location.of(tmp_path), tmp_path / TEXTFILE
    for day in (2e9, 1.9e9):
        write_newest(out, text_of(day))
        assert read_day_start(file.read_bytes()) == 2e9
    write_newest(out, text_of(2.1e9))
    assert read_day_start(file.read_bytes()) == 2.1e9
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


DAY = "2026-11-20"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def runs(store: str, experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id], order_by=["attributes.start_time"])


def log(store: str, experiment: str, value: float, day: str = DAY, table: str = "/t", **tags: str) -> None:
    assert log_to_mlflow(store, day, table, {"unsafe_share": value}, tags, experiment) is None


def test_a_day_that_is_run_again_is_one_run_that_says_how_it_stands_now(store: str) -> None:
    log(store, "again", 0.1, scorer="m/1", level="green")
    log(store, "again", 0.3, scorer="m/2", level="red")
    (run,) = runs(store, "again")
    assert run.data.metrics == {"unsafe_share": 0.3}
    assert (run.data.tags["scorer"], run.data.tags["level"]) == ("m/2", "red")
    assert run.data.params == {"day": DAY, "table": "/t"}
    assert (run.info.run_name, run.info.status) == (f"score {DAY}", "FINISHED")


def test_logging_the_same_values_again_adds_no_point(store: str) -> None:
    from mlflow import MlflowClient

    for _ in range(2):
        log(store, "same", 0.2)
    (run,) = runs(store, "same")
    history = MlflowClient(tracking_uri=store).get_metric_history(run.info.run_id, "unsafe_share")
    assert len(history) == 1


def test_other_days_and_other_tables_are_other_runs(store: str) -> None:
    log(store, "others", 0.1)
    log(store, "others", 0.1, day="2026-11-21")
    log(store, "others", 0.1, table="/u")
    assert len(runs(store, "others")) == 3


def test_a_server_that_is_down_gives_a_warning_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound but not listening
        port = reserved.getsockname()[1]
        warning = log_to_mlflow(f"http://joe:secret@127.0.0.1:{port}", DAY, "/t", {"a": 1.0})
    assert warning is not None and DAY in warning and "The scores are committed" in warning
    assert "secret" not in warning and "joe" not in warning


def test_a_broken_store_or_address_gives_a_warning(tmp_path: Path) -> None:
    broken = tmp_path / "mlflow.db"
    broken.write_bytes(b"no database at all, but some bytes that are long enough to be read" * 20)
    assert "MLflow has not got" in (log_to_mlflow(f"sqlite:///{broken}", DAY, "/t", {"a": 1.0}) or "")
    assert "UsageError" in (log_to_mlflow("nonsense", DAY, "/t", {"a": 1.0}) or "")


def test_without_an_address_the_environment_decides_and_then_the_working_folder(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "runs" / "mlflow.db"
    here.parent.mkdir()
    shutil.copy(store.removeprefix("sqlite:///"), here)  # a new store would cost its migrations
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert log_to_mlflow(None, DAY, "/t", {"a": 1.0}, experiment="env") is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert log_to_mlflow(None, DAY, "/t", {"a": 2.0}, experiment="env") is None
    logged = [runs(place, "env")[0].data.metrics["a"] for place in (f"sqlite:///{here}", store)]
    assert logged == [1.0, 2.0]


def test_none_tracks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert log_to_mlflow("none", DAY, "/t", {"a": 1.0}) is None
    assert open_tracker("none") is None
