"""`sgpu benchmark` on response sets of one's own: the real command, Ray, Delta tables, MLflow and report."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import mlflow
import polars as pl
import pytest
from own_answers import response_sets, write_study

import sgpu
from pipelines.study_assets import STUDY_ASSETS
from sgpu.report.study.record import SHOWN
from sgpu.storage.store import Partition, Store
from sgpu.storage.tables import spectra_table

ROWS = 120
NO_VLLM = "import sys; sys.modules['vllm'] = None; from sgpu.cli import main; main()"


def run_sgpu(
    *words: str, cwd: Path, store: str | None = None, dagster: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, but on a machine where vLLM cannot be imported."""
    others = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    named = {} if store is None else {"MLFLOW_TRACKING_URI": store}
    named |= {} if dagster is None else {"DAGSTER_HOME": str(dagster)}
    return subprocess.run(
        [sys.executable, "-c", NO_VLLM, *words],
        cwd=cwd, capture_output=True, text=True, timeout=500, env={**others, **named, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A finished study with a bad row among its answers; its folder and what the command printed."""
    folder = tmp_path_factory.mktemp("own")
    bad = {"question_id": "lonely", "question": "?", "answers": ["only one"], "references": ["x"]}
    study = write_study(folder, [*response_sets(ROWS), bad])
    # Answers are given here, so that this server is never asked.
    served = "{name: my-model, engine: openai, base_url: 'http://user:hunter2@host/v1?key=hunter3'}"
    study.write_text(f"{study.read_text()}models: [{served}]\nresources: {{fitters: 2}}\n")
    (folder / "dagster").mkdir()
    done = run_sgpu("benchmark", str(study), cwd=folder, dagster=folder / "dagster")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "own", done


Finished = tuple[Path, "subprocess.CompletedProcess[str]"]


def test_the_command_prints_the_report_and_one_line_a_stage(finished: Finished) -> None:
    out, done = finished
    assert done.stdout.strip() == str(out / "report" / "index.html")
    stages = [line.split()[0] for line in done.stderr.splitlines() if "my-model/answers" in line]
    for stage in ("import", "judge", "encode", "fit", "predict", "measure"):
        assert stage in stages


def test_the_command_ends_with_the_table_of_methods(finished: Finished) -> None:
    last = [line.split() for line in finished[1].stderr.splitlines()[-4:]]
    assert last[0][:2] == ["method", "AUROC"]
    assert {line[0] for line in last[1:]} == {"sgpu", "predictive_entropy", "largest_eigenvalue"}
    assert last[1][1] >= last[2][1] >= last[3][1]


def test_metrics_are_long_form_and_the_same_in_both_files(finished: Finished) -> None:
    out, _ = finished
    csv, parquet = pl.read_csv(out / "metrics.csv"), pl.read_parquet(out / "metrics.parquet")
    wanted = ["dataset", "model", "method", "metric", "value", "lo", "hi", "n", "n_missing"]
    assert parquet.columns[:9] == wanted
    assert csv.shape == parquet.shape
    row = parquet.filter((pl.col("method") == "sgpu") & (pl.col("metric") == "auroc")).to_dicts()[0]
    assert row["n"] == 48 and row["lo"] <= row["value"] <= row["hi"]
    # The answers are made so that agreement means right.
    assert row["value"] > 0.8
    settings = json.loads(row["settings"])
    for key in ("revision", "judge", "encoder", "n_answers", "seed", "code_version", "engine"):
        assert settings[key] is not None


def test_the_bad_row_is_quarantined_with_its_line_and_shown(finished: Finished) -> None:
    out, done = finished
    assert f"line {ROWS + 1}" in done.stderr
    assert f"line {ROWS + 1}" in (out / "report" / "index.html").read_text()


def test_the_bad_row_is_counted_in_the_facts_of_the_run(finished: Finished) -> None:
    out, _ = finished
    stages = json.loads((out / "run.json").read_text())["stages"]
    imported = next(stage for stage in stages if stage["name"] == "import" and "/" not in stage["cell"])
    assert (imported["rows_in"], imported["rows_failed"]) == (ROWS + 1, 1)


def test_a_second_run_does_nothing_again(finished: Finished) -> None:
    out, _ = finished
    done = run_sgpu("benchmark", "own.yaml", cwd=out.parent.parent)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "rows" in line and "quarantined" not in line]
    assert len(lines) == 7
    assert all("unchanged" in line for line in lines)


def test_the_fit_is_loaded_and_predicts_from_texts(finished: Finished) -> None:
    out, _ = finished
    current = json.loads(next((out / "fits").rglob("current.json")).read_text())
    model = sgpu.load_model(str(out / "fits" / "my-model" / "answers" / current["folder"]))
    sure, unsure = model.predict(
        [["Paris"] * 6, ["Paris", "Rome", "Oslo", "Lima", "Bonn", "Kiev"]]
    ).probability
    assert sure > 0.7 > 0.4 > unsure


def test_dagster_is_told_what_the_command_has_made(finished: Finished) -> None:
    out, _ = finished
    cell = dg.MultiPartitionKey({"model": "my-model", "dataset": "answers"})
    with dg.DagsterInstance.from_config(str(out.parents[1] / "dagster")) as instance:
        made = {key.to_user_string() for key in instance.get_asset_keys()}
        assert made == {asset.name for asset in STUDY_ASSETS}
        assert instance.get_materialized_partitions(dg.AssetKey("spectra")) == {cell}
        event = instance.get_latest_materialization_event(dg.AssetKey("spectra"))
        assert event is not None and event.asset_materialization is not None
        spectra = Partition.of(model="my-model", dataset="answers", encoder="all-MiniLM-L6-v2")
        published = Store(out).require(spectra_table(6).name, spectra)
        tags = event.asset_materialization.tags or {}
        assert tags["dagster/data_version"] == published.fingerprint
        key = dg.AssetCheckKey(dg.AssetKey("spectra"), "eigenvalue_sum")
        (check,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
        assert check.evaluation is not None and check.evaluation.passed


def test_several_fitters_are_workers_of_one_ray_train_job(finished: Finished) -> None:
    out, _ = finished
    assert len(list((out / "fits" / "_ray_train").glob("fits-*"))) == 1


def test_mlflow_keeps_parameters_metrics_artifacts_and_the_registered_model(finished: Finished) -> None:
    out, _ = finished
    uri = f"sqlite:///{out.parent / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    cells = [run for run in runs if "auroc/sgpu" in run.data.metrics]
    assert len(cells) == 1 and cells[0].data.params["judge"] == "alias"
    others = {f"auroc/{method}" for method in ("predictive_entropy", "largest_eigenvalue")}
    assert set(cells[0].data.metrics) == {f"{name}/sgpu" for name in SHOWN} | others and len(SHOWN) == 5
    all_of_it = mlflow.artifacts.download_artifacts(
        run_id=cells[0].info.run_id, artifact_path="metrics.csv", tracking_uri=uri
    )
    keys = ["method", "metric", "value"]
    assert sorted(pl.read_csv(all_of_it)[keys].rows(), key=str) == sorted(
        pl.read_csv(out / "metrics.csv")[keys].rows(), key=str
    )
    parent = next(run for run in runs if run.info.run_id not in {cell.info.run_id for cell in cells})
    assert "methods" in parent.data.params
    assert parent.data.params["datasets.answers.judge.name"] == "alias"
    assert {"report", "metrics.csv"} <= {file.path for file in client.list_artifacts(parent.info.run_id)}
    version = client.get_model_version_by_alias("sgpu-my-model-answers", "candidate")
    assert int(version.version) == 1


def test_a_finished_run_is_recorded_in_the_store_of_the_environment_wherever_it_lies(
    finished: Finished, tmp_path: Path
) -> None:
    out, _ = finished
    # A copy of the store that is there: a new one would cost its migrations.
    shutil.copy(out.parent / "mlflow.db", tmp_path / "other.db")
    shutil.copytree(out, tmp_path / "kept")
    words = ["--out", str(tmp_path / "kept"), "--set", "tracking.alias=again"]
    done = run_sgpu(
        "benchmark", "own.yaml", *words, cwd=out.parent.parent, store=f"sqlite:///{tmp_path}/other.db"
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "recorded in MLflow" in line]
    assert len(said) == 1 and str(tmp_path / "other.db") in said[0]
    versions = [
        len(mlflow.MlflowClient(f"sqlite:///{store}").search_runs(["1"]))
        for store in (out.parent / "mlflow.db", tmp_path / "other.db")
    ]
    assert versions == [2, 4]


def test_no_file_of_a_run_holds_the_password_of_an_address(finished: Finished) -> None:
    out, done = finished
    shown = json.loads((out / "run.json").read_text())["study"]["models"][0]["base_url"]
    assert shown == "http://host/v1?key=***"
    files = [path for path in out.parent.rglob("*") if path.is_file()]
    assert {"mlflow.db", "index.html"} <= {path.name for path in files}
    assert [path for path in files if b"hunter" in path.read_bytes()] == []
    assert "hunter" not in done.stdout + done.stderr


def test_the_tables_are_read_by_polars_as_they_are(finished: Finished) -> None:
    out, _ = finished
    frame = pl.read_delta(str(out / "tables" / "spectra"))
    assert frame.height == ROWS
    assert frame["model"].unique().to_list() == ["my-model"]
    assert frame["eigenvalues"].list.sum().is_close(6.0, abs_tol=1e-6).all()


def test_a_study_without_a_usable_class_is_told_so_and_still_reported(tmp_path: Path) -> None:
    rows = [{**row, "label": 1} for row in response_sets(30)]
    study = write_study(tmp_path, rows)
    done = run_sgpu("benchmark", str(study), "--set", "tracking.mlflow=none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "All 30 labelled questions of my-model/answers are right" in done.stderr
    page = (tmp_path / "runs" / "own" / "report" / "index.html").read_text()
    assert "All 30 labelled questions of my-model/answers are right" in page
    assert "undefined" not in page and "check " not in done.stderr
    assert len(re.findall(r'<span class="sub">(q\d+)</span>', page)) == 30


def test_a_question_without_an_answer_is_listed_with_the_reason_and_not_scored(
    tmp_path: Path,
) -> None:
    rows = [
        {key: row[key] for key in ("question_id", "question", "answers")} for row in response_sets(12, n=8)
    ]
    rows[3]["answers"] = ["I don't know."] * 7 + [""]
    study = write_study(tmp_path, rows)
    done = run_sgpu("benchmark", str(study), "--set", "tracking.mlflow=none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "runs" / "own"
    page = (out / "report" / "index.html").read_text()
    assert re.findall(r'<span class="sub">(q\d+)</span>', page)[0] == "q3"
    assert "not scored: all 8 answers decline to answer or are empty" in page
    assert "1 of 12 test questions have no answer" in page
    frame = pl.read_delta(str(out / "tables" / "predictions")).filter(question_id="q3")
    assert frame["no_answer"].to_list() == ["refusal"] * len(frame) and len(frame) > 0
    assert frame["confidence"].null_count() == len(frame)


def test_answers_without_labels_or_references_are_ranked_by_scores_that_need_none(tmp_path: Path) -> None:
    rows = [
        {key: row[key] for key in ("question_id", "question", "answers")} for row in response_sets(60, n=8)
    ]
    methods = "methods: [sgpu, spectral_entropy, largest_eigenvalue, self_consistency]\n"
    data = "datasets: [{kind: responses, path: answers.jsonl, model: my-model}]\n"
    study = write_study(tmp_path, rows, data + methods)
    done = run_sgpu("benchmark", str(study), "--set", "tracking.mlflow=none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "check " not in done.stderr
    out = tmp_path / "runs" / "own"
    page = (out / "report" / "index.html").read_text()
    assert "undefined" not in page and "matching the references" not in page and "#departures" not in page
    listed = re.findall(r'<span class="sub">(q\d+)</span>', page)
    assert sorted(listed) == sorted(row["question_id"] for row in rows)
    frame = pl.read_delta(str(out / "tables" / "predictions"))
    assert set(frame["method"]) == {"spectral_entropy", "largest_eigenvalue", "self_consistency"}
    places = (
        frame.with_columns(pl.col("confidence").rank().over("method").alias("place"))
        .group_by("question_id").agg(pl.col("place").mean()).sort("place", "question_id")
    )  # fmt: skip
    assert listed == places["question_id"].to_list()
    for title in ("Spectral entropy", "Largest eigenvalue", "Self-consistency"):
        assert f"{title}</th>" in page


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_and_says_that_it_can_go_on(tmp_path: Path, ended_by: signal.Signals) -> None:
    study = write_study(tmp_path, response_sets(ROWS))
    # A shell lets what it starts in the background ignore SIGINT, and tests can run there.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", listening + NO_VLLM, "benchmark", str(study)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # The first line of a stage that Ray does: its session is up.
        for line in process.stderr:
            if "starting" in line or line.startswith("judge"):
                break
        process.send_signal(ended_by)
        said = process.stderr.read()
        assert process.wait(timeout=120) == 130
    assert "the same command goes on from there" in said and "Traceback" not in said
