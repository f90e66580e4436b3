"""What people asked and models answered stays in the logs: no table, page, metric or message repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from bench.constructed_logs.faults import FAULTS
from tests.scoring.nights.nights import DAY, quarantine, reasons, scores
from tests.security.forbidden_code import ROOT
from tests.security.marked_night import ANSWER, KEY, QUESTION

SECRETS = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "OPENAI_API_KEY", "MLFLOW_TRACKING_PASSWORD")


class Night(NamedTuple):
    place: Path
    said: str


@pytest.fixture(scope="module")
def bad_night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    place = tmp_path_factory.mktemp("night")
    environment = {**os.environ, **dict.fromkeys(SECRETS, KEY), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.security.marked_night", str(place)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return Night(place, done.stdout + done.stderr)


def written(place: Path) -> dict[str, str]:
    """The content of every file beneath the output; of Parquet files the values."""
    found = {}
    for path in (place / "out").rglob("*"):
        if path.is_file():
            parquet = path.suffix == ".parquet"
            text = str(pl.read_parquet(path).rows()) if parquet else path.read_text(errors="replace")
            found[str(path.relative_to(place))] = text
    return found


def test_no_question_answer_or_key_leaves_the_logs(bad_night: Night) -> None:
    told = {**written(bad_night.place), "what was said": bad_night.said}
    assert any(name.endswith("summary.json") for name in told)
    assert "DEBUG" in bad_night.said
    leaks = [(name, mark) for name, text in told.items() for mark in (ANSWER, QUESTION, KEY) if mark in text]
    assert leaks == []


def test_the_marks_were_in_the_logs_and_every_fault_was_met(bad_night: Night) -> None:
    log = (bad_night.place / "logs" / f"dt={DAY}" / "sgpu-0.jsonl").read_text(errors="replace")
    assert ANSWER in log
    assert QUESTION in log
    assert len(scores(bad_night.place)) > 200
    assert set(reasons(bad_night.place)) == {str(reason) for reason, _ in FAULTS.values()}


def test_details_of_the_quarantine_are_short_and_plain(bad_night: Night) -> None:
    details = quarantine(bad_night.place)["detail"].to_list()
    assert max(map(len, details)) < 300
    assert all(detail.isascii() and detail.isprintable() for detail in details)
