"""`sgpu benchmark --out s3://...`: the real command on object storage, with the results of a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from own_answers import response_sets, write_study

from sgpu.fitted.model import load_model
from sgpu.storage.location import Location
from tests.object_store import ROOT, SECRET, ObjectStore

STUDY = (
    "datasets: [{kind: responses, path: answers.jsonl, model: my-model}]\n"
    "methods: [sgpu, predictive_entropy, largest_eigenvalue]\n"
    "tracking: {mlflow: none}\n"
)


def sgpu(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it on a machine with a cache of its own."""
    own = {"COLUMNS": "200", "PYTHONPATH": str(ROOT), "SGPU_CACHE": str(cwd / "cache")}
    return subprocess.run(
        [sys.executable, "-c", "from sgpu.cli import main; main()", *words],
        cwd=cwd, capture_output=True, text=True, timeout=500, env={**os.environ, **own, **environment},
    )  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path, response_sets(60), STUDY)


def in_folder(study: Path) -> Path:
    out = study.parent / "local"
    done = sgpu("benchmark", str(study), "--out", out.as_uri(), cwd=study.parent)
    assert done.returncode == 0, done.stderr
    return out


def test_a_study_in_object_storage_gives_what_it_gives_in_a_folder(
    object_store: ObjectStore, study: Path, tmp_path: Path
) -> None:
    uri = object_store.uri("studies/own")
    done = sgpu("benchmark", str(study), "--out", uri, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{uri}/report/index.html"
    root, out = Location.of(uri), in_folder(study)
    assert (root / "metrics.csv").read_bytes() == (out / "metrics.csv").read_bytes()
    reach = {"aws_endpoint_url": object_store.url, "aws_allow_http": "true", "aws_region": "us-east-1"}
    for table in ("questions", "responses", "labels", "spectra", "predictions"):
        there = pl.read_delta(f"{uri}/tables/{table}", storage_options=reach).sort(pl.all().exclude(pl.List))
        here = pl.read_delta(str(out / "tables" / table)).sort(pl.all().exclude(pl.List))
        assert there.equals(here), table
    names = {file.name for file in root.files(recursive=True)}
    assert {"index.html", "run.json", "metrics.parquet", "bundle.json", "gp.safetensors"} <= names
    # Everything that is kept, and all that was said, is free of the credentials.
    assert all(SECRET.encode() not in file.read_bytes() for file in root.files(recursive=True))
    assert SECRET not in done.stdout + done.stderr
    fit = load_model(f"{uri}/fits/my-model/answers")
    assert fit.require_spectrum().n_answers == 6

    # Another machine, with nothing in its cache, goes on from what is there and renders the report anew.
    fresh = {"SGPU_CACHE": str(tmp_path / "other machine")}
    again = sgpu("benchmark", str(study), "--out", uri, cwd=tmp_path, **fresh)
    assert again.returncode == 0, again.stderr
    # What is said of a stage stands below it, indented.
    lines = again.stderr.splitlines()
    stages = [line for line in lines if "my-model/answers" in line and not line.startswith(" ")]
    assert stages and all("unchanged" in line for line in stages)
    report = sgpu("report", uri, cwd=tmp_path, **fresh)
    assert (report.returncode, report.stdout.strip()) == (0, f"{uri}/report/index.html"), report.stderr


@pytest.mark.parametrize(
    ("bucket", "absent", "said"),
    [
        ("not-there", "", "there is no bucket not-there. Create it"),
        ("", "AWS_", "no credentials were found. Set them in the environment"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_message_before_any_work(
    object_store: ObjectStore,
    study: Path,
    bucket: str,
    absent: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if absent:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    uri = f"s3://{bucket or object_store.bucket}/run"
    done = sgpu("data", "prepare", str(study), "--out", uri, cwd=study.parent)
    assert done.returncode == 2 and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


def test_refused_access_is_one_message(object_store: ObjectStore, study: Path) -> None:
    object_store.fail(403, 10_000)
    done = sgpu("data", "prepare", str(study), "--out", object_store.uri("run"), cwd=study.parent)
    assert done.returncode == 2 and "access is denied. Allow listing, reading, writing" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_storage_that_fails_for_a_moment_is_asked_again(object_store: ObjectStore, study: Path) -> None:
    object_store.fail(500, 3)
    done = sgpu("data", "prepare", str(study), "--out", object_store.uri("run"), cwd=study.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == object_store.uri("run")


def test_aggregate_tables_are_written_to_object_storage(object_store: ObjectStore, tmp_path: Path) -> None:
    cells = tmp_path / "cells.csv"
    cells.write_text(
        "dataset,model,method,auroc,auarc_20,ece\nd,m,sgpu,0.8,0.7,0.1\nd,m,largest_eigenvalue,0.7,0.6,\n"
    )
    uri = object_store.uri("tables")
    done = sgpu("report", "--cells", str(cells), "--out", uri, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"{uri}/index.html"), done.stderr
    assert "summary.csv" in {file.name for file in Location.of(uri).files()}
