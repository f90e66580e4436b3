"""Single answers are asked again: the whole night, with vLLM's server and the real encoder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.served_model import SERVED_NAME, served_model
from tests.scoring.nights import nights
from tests.scoring.nights.nights import quarantine, row, scores, write
from tests.scoring.nights.test_real_model import real as real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SGPU = [sys.executable, "-c", "from sgpu.cli import main; main()"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_model(tmp_path_factory.mktemp("serve")) as url:
        yield url


def score(place: Path, server: str, **settings: object) -> None:
    """`sgpu score` in a process of its own."""
    asked = {"resample.model": SERVED_NAME, "resample.n": 4, "resample.max_tokens": 8, **settings}
    command = [*SGPU, "score", "--logs", "logs", "--model", "model", "--out", "out", "--workers", "0"]
    command += ["--date", str(nights.DAY), "--resample", server, "--max-bad", "1"]
    command += [part for key, value in asked.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode in (0, 4, 5), done.stderr


def test_single_answers_get_scores_from_new_answers_within_share_and_budget(real: Path, server: str) -> None:
    singles = [
        row(f"s{i}", ["Paris"], prompt=f"Name a city with {i} letters.", sampling={"n": 1})
        for i in range(4, 12)
    ]
    write(real / "logs", "b.jsonl", singles)
    score(real, server, **{"resample.share": 1, "resample.requests": 5})
    found = scores(real)
    asked = found.filter(found["status"] == "resampled")
    assert asked.height == 5 and asked["n_used"].unique().to_list() == [4]
    assert asked["probability"].is_between(0, 1).all()
    left = quarantine(real).filter(quarantine(real)["request_id"].str.starts_with("s"))
    assert left.height == 3 and left["detail"].str.contains("over_budget").all()
    before = nights.files(real)
    write(real / "logs", "c.jsonl", [row("later", ["a", "a", "b", "b"])])
    score(real, server, **{"resample.share": 1, "resample.requests": 5})
    after = scores(real)
    assert set(before) <= set(nights.files(real)) and after["request_id"].is_unique().all()
    assert json.loads((real / "out/days/2026-11-20/summary.json").read_bytes())["accounting"]["already"] >= 5
