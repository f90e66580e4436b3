"""A stage whose tables and checkpoints are in object storage, with a driver that is really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from sgpu.runtime.session import ray_session
from sgpu.storage.location import Location
from sgpu.storage.store import Store
from tests.object_store import ROOT, ObjectStore
from tests.runtime.conftest import TOY, load_toy


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The toy stage without a session, as each test starts its own."""
    monkeypatch.setenv("PYTHONPATH", f"{TOY}{os.pathsep}{ROOT}")
    return load_toy()


def test_a_killed_writer_is_resumed_from_object_storage_with_every_row_once(
    object_store: ObjectStore, toy: ModuleType, tmp_path: Path
) -> None:
    uri = object_store.uri("run")
    process = subprocess.Popen(
        [sys.executable, str(TOY / "toy_stage.py"), str(tmp_path), uri],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    labels = Location.of(uri) / "tables" / "labels"
    deadline = time.monotonic() + 120
    while len(labels.files(".parquet", recursive=True)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(2)  # the dead driver's workers notice and end
    assert 3 <= len(labels.files(".parquet", recursive=True)) < toy.ROWS // toy.BLOCK
    assert Store(uri).published("labels", toy.TARGET) is None
    with ray_session():
        outcome = toy.run(tmp_path, kept_in=uri)
    ids = Store(uri).require("labels", toy.TARGET).read()["question_id"].to_pylist()
    assert sorted(ids) == [f"q{i:02d}" for i in range(toy.ROWS)]
    assert outcome.rows_resumed >= 2 * toy.BLOCK
    computed = Counter((tmp_path / "calls").read_text().split())
    assert sum(computed.values()) <= toy.ROWS + 3 * toy.BLOCK  # those in flight at the kill
    assert (Location.of(uri) / "checkpoints").files(recursive=True) == []
    assert toy.run(tmp_path, kept_in=uri).reused
