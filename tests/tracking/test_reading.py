"""A store that is down is given up soon, and said by name with a remedy."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sgpu.errors import DataError, StageError, UsageError
from sgpu.tracking import open_tracker, open_versions, store, store_address
from sgpu.tracking.store import bounded_requests, reading, redact_address


class Faulty(BaseHTTPRequestHandler):
    """Counts requests; answers with an error and a wish for a long pause, or not at all."""

    asked = 0
    seconds = 0.0

    def do_GET(self) -> None:
        type(self).asked += 1
        time.sleep(self.seconds)
        self.send_response(503)
        self.send_header("Retry-After", "3600")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Faulty, "asked", 0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def none_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in store.BOUNDS:
        monkeypatch.delenv(name, raising=False)


def test_a_server_that_fails_is_asked_three_times_whatever_pause_it_wishes(faulty: str) -> None:
    started = time.monotonic()
    with pytest.raises(DataError, match="does not answer"):
        open_versions(faulty).all_of("mine")
    assert Faulty.asked == 3
    assert time.monotonic() - started < 20


def test_opening_a_store_that_fails_is_given_up_too(faulty: str) -> None:
    with pytest.raises(StageError, match="could not open the tracking store") as caught:
        open_tracker(faulty.replace("//", "//me:secret@"))
    assert Faulty.asked == 3
    assert "secret" not in str(caught.value)


def test_a_server_that_hangs_is_given_up(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "seconds", 30.0)
    monkeypatch.setitem(store.BOUNDS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    started = time.monotonic()
    with pytest.raises(DataError, match="does not answer"):
        open_versions(faulty).meant_by("models:/mine@champion")
    assert time.monotonic() - started < 20


def test_a_store_that_is_not_there_is_named_without_its_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError) as caught:
        open_versions(f"http://me:secret@127.0.0.1:{port}").meant_by("models:/mine@champion")
    for part in ("models:/mine@champion", f"http://127.0.0.1:{port}", "Try again later", "sgpu fit"):
        assert part in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_environment_is_as_before_and_the_users_own_values_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    before = dict(os.environ)
    with pytest.raises(KeyError), bounded_requests():
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
        raise KeyError
    assert dict(os.environ) == before


def test_an_error_that_is_not_of_the_store_passes_through(tmp_path: object) -> None:
    with pytest.raises(KeyError), reading("http://127.0.0.1:1", "x"):
        raise KeyError("ours")


@pytest.mark.parametrize(
    ("store", "seen"),
    [
        ("postgresql://me:secret@db:5432/mlflow?password=x", "postgresql://db:5432/mlflow"),
        ("https://host/prefix", "https://host/prefix"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_store_is_shown_without_what_is_secret(store: str, seen: str) -> None:
    assert redact_address(store) == seen


def test_the_store_is_the_one_given_then_the_environments_then_the_one_beside_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert store_address() == store_address("auto") == f"sqlite:///{tmp_path}/runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    assert store_address() == store_address("auto") == "http://server"
    assert store_address("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"


def test_an_address_that_is_no_store_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="sqlite:///FILE"):
        open_versions("mlruns")
