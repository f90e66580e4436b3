"""A transfer study on three nodes gives the tables of one process, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from bench.constructed_cells import write_run
from tests.cluster.nodes import LocalCluster, with_folders

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
STUDY = {
    "designs": ["leave_both_out", "model_matrix"],
    "selection": {"kernels": ["matern15", "rbf"], "representations": ["raw"], "inducing": [16]},
    "curve": {"design": "leave_both_out", "cells": [], "rows": [60], "seeds": 2},
    "calibration": None,
    "bootstrap": 100,
    "tracking": {"mlflow": "none"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    cluster = LocalCluster(**with_folders({}, ROOT))
    try:
        for _ in range(3):
            cluster.add(2)
        yield cluster
    finally:
        cluster.stop()


def transfer(folder: Path, out: str, environment: dict[str, str], *options: str) -> dict[str, pl.DataFrame]:
    command = [sys.executable, "-c", "from sgpu.cli import main; main()", "transfer", "study.yaml"]
    done = subprocess.run(
        [*command, "--out", out, *options], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    files = sorted((folder / out / "tables").rglob("*.parquet"))
    frames = {str(file.parent.parent.name): pl.read_parquet(file) for file in files}
    assert len(list((folder / out / "fits" / "rows").glob("*.arrow"))) > 10
    return frames


def test_three_nodes_give_the_tables_of_one_process(cluster: LocalCluster, tmp_path: Path) -> None:
    models, datasets = ["one", "two", "three"], ["facts", "trivia"]
    write_run(tmp_path / "runs", models, datasets, rows=200)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**STUDY, "runs": [{"path": "runs"}]}))
    environment = {**cluster.environment, "PYTHONPATH": str(ROOT)}
    here = transfer(tmp_path, "here", environment, "--set", "fitters=0")
    there = transfer(tmp_path, "there", environment, "--address", cluster.address, "--set", "fitters=3")
    assert here.keys() == there.keys() and len(here) == 4
    for name, frame in here.items():
        assert_frame_equal(frame, there[name], check_exact=True)
