"""A day in MLflow: one run that is taken up again, and a warning instead of a failure."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from sgpu.tracking import open_tracker
from sgpu.watch.mlflow_metrics import log_to_mlflow

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
    assert open_tracker("none").log_day(DAY, "/t", {"a": 1.0}) is None
