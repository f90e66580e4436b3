"""`sgpu transfer` as a user runs it, on finished runs of constructed cells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from bench.constructed_cells import write_run
from pipelines.transfer import defs
from sgpu.storage.location import Location
from tests.object_store import ObjectStore

STUDY = """
runs: [{path: text}, {path: vision}]
selection: {kernels: [matern15], representations: [raw], inducing: [16]}
curve: {cells: [1], rows: [40], seeds: 2}
calibration: {labels: [0, 20], seeds: 2}
bootstrap: 100
tracking: {mlflow: none}
"""
# Nothing here may load a language model or start an engine.
ALONE = (
    "import sys; sys.modules['vllm'] = None; sys.modules['transformers'] = None; "
    "from sgpu.cli import main; main()"
)


def run_sgpu(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ALONE, *words],
        cwd=cwd, capture_output=True, text=True, timeout=300,
        env={**os.environ, "COLUMNS": "200", "SGPU_CACHE": str(cwd / "cache")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished cells and a study of them."""
    made = tmp_path_factory.mktemp("transfer")
    write_run(made / "text", ["one", "two"], ["facts"], rows=80)
    write_run(made / "vision", ["sees"], ["photos", "charts"], rows=80, vision=True)
    (made / "t.yaml").write_text(STUDY)
    return made


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    return run_sgpu("transfer", "t.yaml", "--out", "out", cwd=folder)


def test_the_command_prints_the_page(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    page = folder / "out" / "report" / "index.html"
    assert done.stdout.strip() == str(page) and page.is_file()


@pytest.mark.usefixtures("done")
def test_results_stand_beside_the_page_in_long_form(folder: Path) -> None:
    metrics = pl.read_csv(folder / "out" / "metrics.csv")
    keys = ["dataset", "model", "method", "metric"]
    assert metrics.select(keys).is_unique().all()
    assert set(metrics["design"]) == {
        "in_domain", "training_free", "model_matrix", "dataset_matrix", "leave_one_model_out",
        "leave_one_dataset_out", "leave_both_out", "modality",
    }  # fmt: skip
    assert metrics.equals(pl.read_parquet(folder / "out" / "metrics.parquet"))
    for name in ("comparisons", "curve", "calibration"):
        assert pl.read_csv(folder / "out" / f"{name}.csv").height > 0


@pytest.mark.usefixtures("done")
def test_a_second_run_fits_nothing_and_writes_the_same_numbers(folder: Path) -> None:
    before = (folder / "out" / "metrics.csv").read_bytes()
    again = run_sgpu("transfer", "t.yaml", "--out", "out", cwd=folder)
    assert again.returncode == 0 and "unchanged, not run again" in again.stderr
    assert (folder / "out" / "metrics.csv").read_bytes() == before


@pytest.mark.usefixtures("done")
def test_runs_and_results_in_object_storage_give_the_same_numbers(
    folder: Path, object_store: ObjectStore
) -> None:
    study = STUDY
    for name in ("text", "vision"):
        Location.of(object_store.uri(name)).upload(folder / name)
        study = study.replace(f"path: {name}", f"path: '{object_store.uri(name)}'")
    (folder / "stored.yaml").write_text(study)
    out = Location.of(object_store.uri("out"))
    stored = run_sgpu("transfer", "stored.yaml", "--out", str(out), cwd=folder)
    assert stored.returncode == 0, stored.stderr
    assert stored.stdout.strip() == str(out / "report" / "index.html")
    for name in ("metrics.csv", "comparisons.csv", "curve.csv", "calibration.csv"):
        assert (out / name).read_bytes() == (folder / "out" / name).read_bytes()
    assert b"<!DOCTYPE html>" in (out / "report" / "index.html").read_bytes()
    again = run_sgpu("transfer", "stored.yaml", "--out", str(out), cwd=folder)
    assert again.returncode == 0 and "unchanged, not run again" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.yaml"], "does not exist"),
        (["t.yaml", "--set", "bootstrp=9"], "Did you mean 'bootstrap'?"),
        (["t.yaml", "--set", "runs.0.path=nowhere"], "does not hold a finished study"),
        (["t.yaml", "--out", "text"], "is one of the study's `runs`"),
    ],
)
def test_a_study_that_cannot_run_exits_2_with_one_message(
    folder: Path, words: list[str], message: str
) -> None:
    done = run_sgpu("transfer", *words, cwd=folder)
    assert done.returncode == 2 and message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_dagster_shows_forecasts_before_the_report() -> None:
    names = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert set(names) == {"transfer_forecasts", "transfer_report"}
    assert [dep.asset_key.to_user_string() for dep in names["transfer_report"].deps] == ["transfer_forecasts"]
