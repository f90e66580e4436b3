"""Tracking, against real SQLite stores; the migrations of a new store run once for the whole module."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpu.errors import IntegrityError, StageError, UsageError
from sgpu.storage.store import Partition, Published
from sgpu.tracking import open_tracker, open_versions
from sgpu.tracking.base import RegisteredFit, flatten

OPEN = """
import sys
from sgpu.tracking import open_tracker
open_tracker(f"sqlite:///{sys.argv[1]}/mlflow.db")
"""
SETTINGS = """
from mlflow.environment_variables import *
print(MLFLOW_DISABLE_TELEMETRY.get(), MLFLOW_ALLOW_PICKLE_DESERIALIZATION.get(), MLFLOW_LOGGING_LEVEL.get())
"""
WITHOUT_MLFLOW = """
import sys
from sgpu.tracking import open_tracker
open_tracker("none")
print("mlflow" in sys.modules)
"""


@dataclass(frozen=True)
class Opened:
    root: Path
    printed: list[str]
    codes: list[int]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A store that two processes opened at the same time, before it existed."""
    root = tmp_path_factory.mktemp("store")
    command = [sys.executable, "-c", OPEN, str(root)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in both]
    return Opened(root, printed, [process.returncode for process in both])


@pytest.fixture
def tracker(opened: Opened, request: pytest.FixtureRequest) -> Any:
    """A tracker with an experiment of its own, named after the test."""
    return open_tracker(f"sqlite:///{opened.root}/mlflow.db", request.node.name)


@pytest.fixture
def client(opened: Opened) -> Any:
    """MLflow's own view of the store."""
    from mlflow import MlflowClient

    uri = f"sqlite:///{opened.root / 'mlflow.db'}"
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", scale=1.0)


def write_bundle(folder: Path, scale: float) -> Path:
    from safetensors.numpy import save_file

    folder.mkdir()
    save_file({"scale": np.array([scale])}, folder / "weights.safetensors")
    (folder / "config.json").write_text('{"n": 2}')
    return folder


def logged_model(client: Any, name: str, version: int = 1) -> Any:
    """The logged model behind a registered version, through the run that made it."""
    run_id = client.get_model_version(name, str(version)).run_id
    (output,) = client.get_run(run_id).outputs.model_outputs
    return client.get_logged_model(output.model_id)


# ------------------------------------------------------------------------------------------ the store


def test_two_processes_may_create_the_same_store(opened: Opened, client: Any) -> None:
    assert opened.codes == [0, 0]
    assert [e.name for e in client.search_experiments(filter_string="name = 'sgpu'")] == ["sgpu"]


def test_creating_a_store_prints_nothing(opened: Opened) -> None:
    assert opened.printed == ["", ""]


def test_files_go_beside_the_database(opened: Opened, client: Any) -> None:
    location = client.get_experiment_by_name("sgpu").artifact_location
    assert Path(location) == opened.root / "mlflow-artifacts"


def test_importing_tracking_or_tracking_nothing_does_not_load_mlflow() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MLFLOW], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_telemetry_and_pickled_models_are_off_unless_the_user_says_otherwise(opened: Opened) -> None:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    ours["MLFLOW_LOGGING_LEVEL"] = "ERROR"
    command = [sys.executable, "-c", OPEN + SETTINGS, str(opened.root)]
    done = subprocess.run(command, capture_output=True, text=True, env=ours)
    assert done.stdout == "True False ERROR\n"


def test_opening_a_store_leaves_mlflows_global_address_alone(tracker: Any, opened: Opened) -> None:
    import mlflow

    assert str(opened.root) not in mlflow.get_tracking_uri()


@pytest.mark.parametrize("uri", ["./mlruns", "file:///tmp/x", "databricks"])
def test_a_uri_that_is_no_store_is_a_usage_error(uri: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///FILE"):
        open_tracker(uri)


def test_a_database_without_a_place_for_files_is_a_usage_error_that_hides_the_password() -> None:
    with pytest.raises(UsageError, match="artifact_root") as caught:
        open_tracker("postgresql://someone:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_deleted_experiment_is_a_usage_error(opened: Opened, client: Any) -> None:
    client.delete_experiment(client.create_experiment("deleted"))
    with pytest.raises(UsageError, match="restore"):
        open_tracker(f"sqlite:///{opened.root}/mlflow.db", "deleted")


def test_a_store_whose_creation_was_killed_is_created_by_the_next_one(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sgpu.tracking.store as store

    def killed(tracking_uri: str) -> None:
        Path(tracking_uri.removeprefix("sqlite:///")).write_bytes(b"half a database")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "MlflowClient", killed)
        store._create_database(tmp_path / "mlflow.db")
    assert not (tmp_path / "mlflow.db").exists()

    def create(tracking_uri: str) -> None:
        draft = Path(tracking_uri.removeprefix("sqlite:///"))
        assert not draft.exists()
        shutil.copy(opened.root / "mlflow.db", draft)

    monkeypatch.setattr(store, "MlflowClient", create)
    store._create_database(tmp_path / "mlflow.db")
    assert (tmp_path / "mlflow.db").read_bytes() == (opened.root / "mlflow.db").read_bytes()


# ------------------------------------------------------------------------------------------- studies


def test_a_study_that_ends_is_finished_and_carries_flat_params(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {"sampling": {"n": 20, "stop": ["\n"]}, "seed": 0}, {"who": "me"}) as study:
        assert client.get_run(study.run_id).info.status == "RUNNING"
    run = client.get_run(study.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "demo"
    assert run.data.params == {"sampling.n": "20", "sampling.stop": '["\\n"]', "seed": "0"}
    assert run.data.tags["who"] == "me"
    assert run.data.tags["sgpu.code_version"]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("bad row 7"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_study_that_breaks_off_says_how(
    tracker: Any, client: Any, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), tracker.study("demo", {"case": status}) as study:
        raise error
    run = client.get_run(study.run_id)
    assert run.info.status == status
    assert run.data.tags["sgpu.error"].startswith(type(error).__name__)


def test_an_interrupted_study_is_taken_up_in_the_same_run(tracker: Any, client: Any) -> None:
    with pytest.raises(KeyboardInterrupt), tracker.study("demo", {"seed": 1}) as first:
        raise KeyboardInterrupt
    with tracker.study("demo", {"seed": 1}) as second:
        pass
    assert second.run_id == first.run_id
    run = client.get_run(first.run_id)
    assert run.info.status == "FINISHED"
    assert "sgpu.error" not in run.data.tags


def test_a_finished_study_run_again_is_a_new_run(tracker: Any) -> None:
    with tracker.study("demo", {"seed": 1}) as first:
        pass
    with tracker.study("demo", {"seed": 1}) as second:
        pass
    assert second.run_id != first.run_id


def test_an_interrupted_study_with_other_params_is_a_new_run(tracker: Any) -> None:
    with pytest.raises(KeyboardInterrupt), tracker.study("demo", {"seed": 1}) as first:
        raise KeyboardInterrupt
    with tracker.study("demo", {"seed": 2}) as second:
        pass
    assert second.run_id != first.run_id


def test_a_store_that_fails_does_not_hide_why_the_study_failed(
    tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import MlflowException

    def refuse(*_: object) -> None:
        raise MlflowException("store is gone")

    with pytest.raises(ValueError, match="the real cause") as caught, tracker.study("demo", {}):
        monkeypatch.setattr(tracker._store.client, "set_tag", refuse)
        raise ValueError("the real cause")
    assert "store is gone" in caught.value.__notes__[0]


def test_an_error_of_the_store_is_a_stage_error_with_a_remedy(tracker: Any) -> None:
    with tracker.study("demo", {}) as study, pytest.raises(StageError, match=r"tracking\.mlflow: none"):
        study.log_cell(
            "m", "d", settings={}, metrics=[{"metric": "bad?name", "method": "sgpu", "value": 1.0}]
        )


def test_a_report_folder_is_kept_under_report(tracker: Any, client: Any, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "index.html").write_text("<h1>report</h1>")
    (tmp_path / "figures" / "a.svg").write_text("<svg/>")
    with tracker.study("demo", {}) as study:
        study.log_report(tmp_path)
    assert {file.path for file in client.list_artifacts(study.run_id, "report")} == {
        "report/index.html",
        "report/figures",
    }


def test_a_single_file_is_kept_where_asked(tracker: Any, client: Any, tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("method,value\n")
    with tracker.study("demo", {}) as study:
        study.log_artifact(file, "tables")
    assert [f.path for f in client.list_artifacts(study.run_id, "tables")] == ["tables/metrics.csv"]


# --------------------------------------------------------------------------------------------- cells

ROWS = [
    {"method": "sgpu", "metric": "auroc", "value": 0.81, "lo": 0.75, "hi": 0.86},
    {"method": "sgpu", "metric": "ece", "value": 0.05, "lo": None, "hi": None},
    {"method": "entropy", "metric": "auroc", "value": None, "lo": None, "hi": None},
    {"method": "entropy", "metric": "ece", "value": math.nan, "lo": math.nan, "hi": math.nan},
]


def test_a_cell_is_a_nested_run_with_its_metrics(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {}) as study:
        cell = study.log_cell("smol", "tqa", settings={"judge": {"name": "alias"}}, metrics=ROWS)
    run = client.get_run(cell)
    assert run.data.metrics == {
        "auroc/sgpu": 0.81,
        "auroc/sgpu/lo": 0.75,
        "auroc/sgpu/hi": 0.86,
        "ece/sgpu": 0.05,
    }
    assert run.data.params == {"model": "smol", "dataset": "tqa", "judge.name": "alias"}
    assert run.data.tags["mlflow.parentRunId"] == study.run_id
    assert (run.info.run_name, run.info.status) == ("smol/tqa", "FINISHED")


def test_missing_metric_values_are_counted_and_never_logged_as_numbers(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {}) as study:
        cell = study.log_cell("smol", "tqa", settings={}, metrics=ROWS)
    run = client.get_run(cell)
    assert run.data.tags["sgpu.metrics_missing"] == "2"
    assert not [key for key in run.data.metrics if "entropy" in key]


def test_a_cell_that_is_logged_again_stays_one_run_with_one_point(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {}) as study:
        first = study.log_cell("smol", "tqa", settings={"n": 20}, metrics=ROWS)
        second = study.log_cell("smol", "tqa", settings={"n": 20}, metrics=ROWS)
    assert first == second
    assert len(client.get_metric_history(first, "auroc/sgpu")) == 1


def test_a_cell_logged_again_with_a_better_value_shows_the_new_one(tracker: Any, client: Any) -> None:
    low = [{"method": "sgpu", "metric": "ece", "value": 0.02}]
    with tracker.study("demo", {}) as study:
        study.log_cell("smol", "tqa", settings={}, metrics=ROWS)
        cell = study.log_cell("smol", "tqa", settings={}, metrics=low)
    assert client.get_run(cell).data.metrics["ece/sgpu"] == 0.02


def test_cells_with_other_settings_or_of_another_study_are_other_runs(tracker: Any) -> None:
    with tracker.study("demo", {}) as study:
        runs = {study.log_cell("smol", "tqa", settings={"n": n}) for n in (10, 20)}
    with tracker.study("demo", {}) as study:
        runs.add(study.log_cell("smol", "tqa", settings={"n": 10}))
    assert len(runs) == 3


def test_a_failed_cell_is_marked_until_it_succeeds(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {}) as study:
        cell = study.log_cell("smol", "tqa", settings={}, error="no label could be read")
        failed = client.get_run(cell)
        study.log_cell("smol", "tqa", settings={}, metrics=ROWS)
    assert (failed.info.status, failed.data.tags["sgpu.error"]) == ("FAILED", "no label could be read")
    assert client.get_run(cell).info.status == "FINISHED"
    assert "sgpu.error" not in client.get_run(cell).data.tags


def test_a_cell_names_the_exact_version_of_each_table_it_read(tracker: Any, client: Any) -> None:
    import mlflow.data

    table = Published("spectra", Partition.of(model="smol", dataset="tqa"), "a" * 64, 0, (), 160)
    with tracker.study("demo", {}) as study:
        for _ in range(2):  # logged twice, recorded once
            cell = study.log_cell("smol", "tqa", settings={}, inputs={"/data/spectra": table})
    (read,) = client.get_run(cell).inputs.dataset_inputs
    source = mlflow.data.get_source(read.dataset)
    assert (source.path, source.delta_table_version) == ("/data/spectra", 0)
    assert read.dataset.name == "spectra"
    assert json.loads(read.dataset.profile) == {"num_rows": 160}
    assert {tag.key: tag.value for tag in read.tags} == {
        "mlflow.data.context": "evaluation",
        "delta_version": "0",
        "fingerprint": "a" * 64,
    }


def test_the_files_of_a_cell_are_kept(tracker: Any, client: Any, tmp_path: Path) -> None:
    file = tmp_path / "reliability.svg"
    file.write_text("<svg/>")
    with tracker.study("demo", {}) as study:
        cell = study.log_cell("smol", "tqa", settings={}, artifacts=[file])
    assert [f.path for f in client.list_artifacts(cell)] == ["reliability.svg"]


def test_a_study_with_cells_prints_nothing(tracker: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with tracker.study("demo", {}) as study:
        study.log_cell("smol", "tqa", settings={}, metrics=ROWS)
    assert capfd.readouterr() == ("", "")


def test_more_settings_than_one_request_may_carry_are_all_kept(tracker: Any, client: Any) -> None:
    with tracker.study("demo", {f"key{i}": i for i in range(150)}) as study:
        pass
    assert len(client.get_run(study.run_id).data.params) == 150


def test_flatten_keeps_strings_and_writes_the_rest_as_json() -> None:
    assert flatten({"a": {"b": "x", "c": None, "d": {}}, "e": [1, 2], "f": True}) == {
        "a.b": "x",
        "a.c": "null",
        "a.d": "{}",
        "e": "[1, 2]",
        "f": "true",
    }


# -------------------------------------------------------------------------------------- registered fits


def test_a_fit_becomes_a_version_with_alias_and_facts(tracker: Any, client: Any, bundle: Path) -> None:
    fit = tracker.register_fit(
        bundle, "fit-facts", n_answers=20, alias="candidate", metadata={"cell": "smol/tqa"}
    )
    assert fit == RegisteredFit("fit-facts", 1, created=True)
    version = client.get_model_version_by_alias("fit-facts", "candidate")
    assert version.version == 1
    assert (version.tags["sgpu.n_answers"], version.tags["sgpu.cell"]) == ("20", "smol/tqa")
    model = logged_model(client, "fit-facts")
    assert model.params["cell"] == "smol/tqa"
    assert model.status == "READY"


def test_a_registered_fit_is_the_output_of_the_run_that_made_it(
    tracker: Any, client: Any, bundle: Path
) -> None:
    with tracker.study("demo", {}) as study:
        cell = study.log_cell("smol", "tqa", settings={})
        fit = tracker.register_fit(bundle, "fit-lineage", n_answers=20, run_id=cell)
    version = client.get_model_version("fit-lineage", str(fit.version))
    assert version.run_id == cell
    model = logged_model(client, "fit-lineage")
    assert model.source_run_id == cell
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "fit-lineage", "version": 1}]


def test_a_fit_made_outside_a_study_gets_a_run_of_its_own(tracker: Any, client: Any, bundle: Path) -> None:
    tracker.register_fit(bundle, "fit-own-run", n_answers=20)
    run = client.get_run(client.get_model_version("fit-own-run", "1").run_id)
    assert (run.info.run_name, run.info.status) == ("fit fit-own-run", "FINISHED")


def test_the_same_bundle_is_registered_once(tracker: Any, client: Any, bundle: Path) -> None:
    tracker.register_fit(bundle, "fit-once", n_answers=20)
    again = tracker.register_fit(bundle, "fit-once", n_answers=20, alias="candidate")
    assert again == RegisteredFit("fit-once", 1, created=False)
    assert len(client.search_model_versions("name = 'fit-once'")) == 1
    assert client.get_model_version_by_alias("fit-once", "candidate").version == 1


def test_another_bundle_is_the_next_version_and_takes_the_alias(
    tracker: Any, client: Any, bundle: Path, tmp_path: Path
) -> None:
    tracker.register_fit(bundle, "fit-next", n_answers=20, alias="candidate")
    other = tracker.register_fit(
        write_bundle(tmp_path / "other", 2.0), "fit-next", n_answers=20, alias="candidate"
    )
    assert (other.version, other.created) == (2, True)
    assert client.get_model_version_by_alias("fit-next", "candidate").version == 2


def test_registering_never_moves_the_champion(tracker: Any, client: Any, bundle: Path) -> None:
    with pytest.raises(UsageError, match="champion"):
        tracker.register_fit(bundle, "fit-champion", n_answers=20, alias="champion")
    assert client.search_registered_models("name = 'fit-champion'") == []


def test_promoting_moves_the_champion_and_says_what_it_replaced(
    tracker: Any, client: Any, bundle: Path, tmp_path: Path
) -> None:
    tracker.register_fit(bundle, "fit-promote", n_answers=20)
    tracker.register_fit(write_bundle(tmp_path / "other", 2.0), "fit-promote", n_answers=20)
    versions = open_versions(client.tracking_uri)
    assert versions.make_champion(versions.meant_by("models:/fit-promote/1")) is None
    assert versions.make_champion(versions.meant_by("models:/fit-promote/2")) == 1
    assert client.get_model_version_by_alias("fit-promote", "champion").version == 2


@pytest.mark.parametrize("file", ["model.pkl", "weights.pt", "code.py"])
def test_a_bundle_with_a_file_that_can_run_code_is_refused(tracker: Any, bundle: Path, file: str) -> None:
    (bundle / file).write_bytes(b"\x80\x04.")
    with pytest.raises(IntegrityError, match=file):
        tracker.register_fit(bundle, "fit-refused", n_answers=20)


def test_an_empty_bundle_is_refused(tracker: Any, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="holds no files"):
        tracker.register_fit(tmp_path, "fit-empty", n_answers=20)


def test_the_stored_model_holds_no_pickle(tracker: Any, client: Any, bundle: Path, opened: Opened) -> None:
    tracker.register_fit(bundle, "fit-files", n_answers=20)
    folder = Path(logged_model(client, "fit-files").artifact_location)
    assert folder.is_relative_to(opened.root / "mlflow-artifacts")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "MLmodel",
        "artifacts/bundle/config.json",
        "artifacts/bundle/weights.safetensors",
        "conda.yaml",
        "pyfunc_model.py",
        "python_env.yaml",
        "requirements.txt",
    }


def test_registering_prints_nothing(tracker: Any, bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tracker.register_fit(bundle, "fit-silent", n_answers=20)
    assert capfd.readouterr() == ("", "")


def test_requirements_are_exact_versions_that_an_index_can_serve(tracker: Any) -> None:
    from packaging.requirements import Requirement

    from sgpu.tracking.fits import _requirements

    parsed = [Requirement(line) for line in _requirements()]
    assert {requirement.name for requirement in parsed} >= {"sgpu", "torch", "gpytorch"}
    assert all(str(requirement.specifier).startswith("==") for requirement in parsed)
    assert not [requirement for requirement in parsed if "+" in str(requirement.specifier)]


ANSWERS = [["Paris", "Paris", "Paris", "Paris"], ["Paris", "Lyon", "a large onion", "1815"]]


@pytest.fixture(scope="module")
def real_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit to spectra of N = 4 answers: label 1 where one eigenvalue holds most."""
    from sgpu.encoders import load_encoder
    from sgpu.fitted.model import FittedModel
    from sgpu.fitted.spectrum_classifier import SpectrumClassifier
    from sgpu.gp import GPClassifier

    rng = np.random.default_rng(0)
    spectra = -np.sort(-4 * rng.dirichlet([0.5] * 4, size=60), axis=1)
    gp = GPClassifier(inducing=8).fit(spectra, (spectra[:, 0] > 2.5).astype(int))
    folder = tmp_path_factory.mktemp("fits") / "smol-tqa"
    encoder = load_encoder("all-MiniLM-L6-v2", "float32")
    FittedModel(SpectrumClassifier(gp, encoder.name, "float32", 4, encoder.fingerprint)).save(folder)
    return folder


@pytest.fixture
def real_fit(
    tracker: Any, opened: Opened, real_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> RegisteredFit:
    """The real fit, registered, in the store that MLflow's own functions use."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{opened.root / 'mlflow.db'}")
    fit: RegisteredFit = tracker.register_fit(real_bundle, "real-fit", n_answers=4, alias="candidate")
    return fit


def test_mlflow_predicts_exactly_what_the_saved_fit_predicts(
    real_fit: RegisteredFit, real_bundle: Path
) -> None:
    import mlflow
    import pandas as pd

    import sgpu

    table = mlflow.pyfunc.load_model(real_fit.uri).predict(pd.DataFrame({"answers": ANSWERS}))
    expected = sgpu.load_model(real_bundle).predict(ANSWERS)
    assert list(table.columns) == list(expected._fields)
    for name, values in expected._replace(p_answer=[None, None])._asdict().items():
        np.testing.assert_array_equal(table[name], values)
    assert table["probability"][0] > 0.5 > table["probability"][1]


def test_mlflow_reads_a_set_by_agreement_where_its_question_is_given(
    tracker: Any, real_fit: RegisteredFit, real_bundle: Path, tmp_path: Path
) -> None:
    import mlflow
    import pandas as pd

    import sgpu
    from sgpu.agreement import content_agreement
    from sgpu.gp.content import ContentClassifier

    found = [content_agreement(texts, "Who?") for texts in ANSWERS * 4]
    content = ContentClassifier.fit(found, [1, 0] * 4, [[1] * 4, [0] * 4] * 4, inducing=8)
    model = replace(sgpu.load_model(real_bundle), content=content)
    model.save(tmp_path)
    fit = tracker.register_fit(tmp_path, "fit-plus", n_answers=4)
    questions = ["What is the capital of France?", None]
    rows = pd.DataFrame({"answers": ANSWERS, "question": questions}, index=[3, 8])
    table = mlflow.pyfunc.load_model(fit.uri).predict(rows)
    expected = model.predict(ANSWERS, questions)
    for name, values in expected._replace(p_answer=[expected.p_answer[0], None])._asdict().items():
        np.testing.assert_array_equal(table[name], values)
    assert (table["chosen"].tolist(), table["by"].tolist()) == ([0, -1], ["agreement", "spectrum"])
    json.dumps(table.to_dict(orient="records"), allow_nan=False)


def test_sgpu_loads_a_registered_fit_by_its_alias(real_fit: RegisteredFit, real_bundle: Path) -> None:
    import sgpu

    registered = sgpu.load_model(f"models:/{real_fit.name}@candidate")
    np.testing.assert_array_equal(
        registered.predict(ANSWERS).probability, sgpu.load_model(real_bundle).predict(ANSWERS).probability
    )


def test_a_registered_fit_refuses_a_column_that_is_not_lists_of_strings(real_fit: RegisteredFit) -> None:
    import mlflow
    import pandas as pd
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="schema"):
        mlflow.pyfunc.load_model(real_fit.uri).predict(pd.DataFrame({"answers": [1.0, 2.0]}))


def test_a_registered_fit_that_was_changed_is_refused(real_fit: RegisteredFit, client: Any) -> None:
    import mlflow

    weights = next(Path(logged_model(client, "real-fit").artifact_location).rglob("gp.safetensors"))
    original = weights.read_bytes()
    try:
        weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        with pytest.raises(IntegrityError, match="sha256"):
            mlflow.pyfunc.load_model(real_fit.uri)
    finally:
        weights.write_bytes(original)


# ---------------------------------------------------------------------------------------- tracking nothing


def test_nothing_is_kept_without_a_store() -> None:
    assert open_tracker("none") is None
