"""Killing a real sampling run: `sgpu benchmark` with vLLM, ended with SIGKILL where it hurts most."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import polars as pl
import psutil
import pytest

from sgpu.datasets.base import DATASETS, LoadRequest
from sgpu.datasets.split import split_questions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROWS = 24
STUDY = """
name: killed
models: [smollm2-135m-instruct]
datasets: [{kind: worldfacts, n_train: 12, n_test: 12}]
sampling: {n: 4, max_tokens: 8}
resources: {sample_block_rows: 3}
tracking: {mlflow: none}
evaluation: {bootstrap: 100}
"""
RUN = "from sgpu.cli import main; main()"
# The process ends itself at the commit of the responses: before it, or right after.
KILL_AT_COMMIT = """
import os
from sgpu.storage.store import Store
commit = Store.publish
def publish(self, table, *rest):
    if table.name != "responses":
        return commit(self, table, *rest)
    if {after}:
        commit(self, table, *rest)
    os.kill(os.getpid(), 9)
Store.publish = publish
"""


# Imported by every Python process of the run: one question ends the engine's process, one makes it raise.
POISON = """
import ctypes
from sgpu.engines.vllm import VLLMEngine
sample = VLLMEngine.sample
def poisoned(self, prompts, sampling):
    texts = [prompt.messages[-1][1] for prompt in prompts]
    if any({dies!r} in text for text in texts):
        ctypes.string_at(0)  # a fault of this thread: a signal to the process lets it work on for a while
    if any({raises!r} in text for text in texts):
        raise ValueError("cannot be read")
    return sample(self, prompts, sampling)
VLLMEngine.sample = poisoned
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "killed.yaml"
    path.write_text(STUDY)
    return path


def _start(study: Path, before: str = "", **variables: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        before + RUN,
        "benchmark",
        str(study),
        "--out",
        str(study.parent / "out"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _sampled_files(study: Path) -> set[Path]:
    return set(study.parent.glob("out/tables/responses/**/*.parquet"))


def _wait_for_files(study: Path, number: int) -> None:
    deadline = time.monotonic() + 300
    while len(_sampled_files(study)) < number:
        assert time.monotonic() < deadline, "sampling wrote nothing in 300 s"
        time.sleep(0.05)


def _finish(study: Path) -> pl.DataFrame:
    process = _start(study)
    assert process.wait(timeout=600) == 0
    responses = pl.read_delta(str(study.parent / "out" / "tables" / "responses"))
    assert max(Counter(responses["question_id"].to_list()).values()) == 1
    assert responses.height == ROWS and (responses["status"] == "ok").all()
    assert (study.parent / "out" / "report" / "index.html").is_file()
    return responses


def test_a_driver_killed_in_mid_sampling_goes_on_where_it_stopped(study: Path) -> None:
    process = _start(study)
    _wait_for_files(study, 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(5)  # the dead driver's workers notice and end
    written = {path: path.stat().st_mtime_ns for path in _sampled_files(study)}
    _finish(study)
    kept = [path for path, when in written.items() if path.exists() and path.stat().st_mtime_ns == when]
    # At most the file whose record was not yet complete is written anew.
    assert len(kept) >= 2 and len(kept) >= len(written) - 1


@pytest.mark.parametrize("after", [False, True])
def test_a_driver_killed_around_the_commit_samples_nothing_again(study: Path, after: bool) -> None:
    process = _start(study, KILL_AT_COMMIT.format(after=after))
    assert process.wait(timeout=600) == -signal.SIGKILL
    written = {path: path.stat().st_mtime_ns for path in _sampled_files(study)}
    _finish(study)
    assert {path: path.stat().st_mtime_ns for path in _sampled_files(study)} == written


def test_a_killed_sampling_actor_costs_no_row(study: Path) -> None:
    process = _start(study)
    _wait_for_files(study, 2)
    actors = [
        child
        for child in psutil.Process().children(recursive=True)
        if any("MapBatches(StageActor)" in word for word in child.cmdline())
    ]
    assert actors
    for actor in actors:
        actor.kill()
    assert process.wait(timeout=900) == 0
    _finish(study)


def test_a_question_that_ends_the_engine_and_one_that_raises_are_quarantined(study: Path) -> None:
    source = DATASETS.get("worldfacts").load(LoadRequest())
    asked = [row.question for row in split_questions(source, n_train=12, n_test=12, seed=0).rows]
    dies, raises = asked[2], asked[13]
    plugin = study.parent / "plugin"
    plugin.mkdir()
    (plugin / "sitecustomize.py").write_text(POISON.format(dies=dies.text, raises=raises.text))
    study.write_text(STUDY + "bounds: {quarantined: 0.2}\n")
    process = _start(study, PYTHONPATH=str(plugin))
    assert process.wait(timeout=900) == 0
    responses = pl.read_delta(str(study.parent / "out" / "tables" / "responses"))
    failed = {
        row["question_id"]: row["error"] for row in responses.filter(pl.col("status") != "ok").to_dicts()
    }
    assert failed.keys() == {dies.question_id, raises.question_id}
    assert "ended its worker process" in failed[dies.question_id]
    assert failed[raises.question_id] == "ValueError: cannot be read"
    assert set(responses["question_id"]) == {question.question_id for question in asked}
