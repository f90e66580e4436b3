"""Every method and every small table on two cells of one's own answers, by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from own_answers import response_sets

from sgpu.methods.base import METHODS

ROWS = 80
HIDDEN = {"cov_eigenscore", "cos_eigenscore", "umpire", "saplma", "sep"}
STUDY = f"""
name: all
datasets:
  - {{kind: responses, path: one.jsonl, model: first}}
  - {{kind: responses, path: two.jsonl, model: second}}
methods: [{", ".join(METHODS.names())}]
entailment: {{backend: alias}}
evaluation: {{bootstrap: 200}}
tracking: {{mlflow: none}}
sensitivity: {{kernels: [rbf, matern15], n_answers: [3, 4], train_sizes: [10, 20]}}
"""


def run_sgpu(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sgpu.cli import main; main()", *words]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=500, env=environment)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study of two cells."""
    folder = tmp_path_factory.mktemp("all")
    for seed, name in enumerate(("one", "two")):
        rows = response_sets(ROWS, seed=seed)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "all.yaml").write_text(STUDY)
    done = run_sgpu("benchmark", "all.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "all"


def test_every_method_has_metrics_or_says_why_not(out: Path) -> None:
    methods = set(pl.read_csv(out / "metrics.csv")["method"])
    assert methods == set(METHODS.names()) - HIDDEN
    page = (out / "report" / "index.html").read_text()
    assert page.count("these answers were sampled elsewhere") == 2 * len(HIDDEN)


def test_the_pooled_classifier_is_one_fit_of_the_rows_of_both_cells(out: Path) -> None:
    predictions = pl.read_delta(str(out / "tables" / "predictions"))
    (fit_id,) = predictions.filter(pl.col("method") == "global_sgpu")["fit_id"].unique()
    bundle = json.loads((out / "fits" / "_global" / fit_id / "bundle.json").read_text())
    assert bundle["provenance"]["cells"] == ["first/one", "second/two"]
    local = [json.loads(path.read_text()) for path in out.glob("fits/*/*/*/bundle.json")]
    assert bundle["provenance"]["rows"] == sum(own["provenance"]["rows"] for own in local)


def test_a_single_fitter_is_the_command_itself(out: Path) -> None:
    assert not (out / "fits" / "_ray_train").exists()


def test_every_other_method_is_compared_with_sgpu(out: Path) -> None:
    rows = pl.read_delta(str(out / "tables" / "comparisons")).filter(pl.col("metric") == "auroc")
    assert set(rows["reference"]) == {"sgpu"}
    assert set(rows["method"]) == set(METHODS.names()) - HIDDEN - {"sgpu"}
    assert (rows["p_holm"].drop_nulls() >= rows.filter(pl.col("p_holm").is_not_null())["p"]).all()


def test_a_variant_with_the_studys_own_settings_is_the_studys_result(out: Path) -> None:
    metrics = pl.read_csv(out / "metrics.csv").filter(pl.col("method") == "sgpu")
    varied = pl.read_delta(str(out / "tables" / "sensitivity")).filter(pl.col("method") == "sgpu")
    for model in ("first", "second"):
        for metric in ("auroc", "ece"):
            own = metrics.filter((pl.col("model") == model) & (pl.col("metric") == metric))["value"].item()
            same = varied.filter((pl.col("model") == model) & (pl.col("metric") == metric))
            whole = same.filter((pl.col("kind") == "n_answers") & (pl.col("setting") == "6"))["value"].item()
            assert whole == pytest.approx(own, abs=1e-12)
            sizes = same.filter(pl.col("kind") == "train_size").sort(pl.col("setting").cast(pl.Int64))
            assert sizes["value"].to_list()[-1] == pytest.approx(own, abs=1e-12)


def test_the_kernels_are_compared_on_validation_questions_only(out: Path) -> None:
    rows = pl.read_delta(str(out / "tables" / "sensitivity")).filter(pl.col("kind") == "kernel")
    questions = pl.read_delta(str(out / "tables" / "questions"))
    for model, dataset in (("first", "one"), ("second", "two")):
        n = questions.filter((pl.col("dataset") == dataset) & (pl.col("split") == "validation")).height
        assert set(rows.filter(pl.col("model") == model)["n"]) == {n}


def test_tables_are_files_too(out: Path) -> None:
    names = {path.stem for path in (out / "report" / "tables").glob("*.csv")}
    assert {"n_samples", "train_size", "kernels", "unsafe", "self_consistency", "bootstrap_ci"} <= names
    for name in names:
        assert r"\toprule" in (out / "report" / "tables" / f"{name}.tex").read_text()
    means = pl.read_csv(out / "report" / "aggregate" / "overall_mean.csv")
    assert {"SGPU", "Global-SGPU", "KLE"} <= set(means["method"])


def test_other_numbers_of_answers_use_the_stored_answers(out: Path) -> None:
    def versions(table: str) -> set[str]:
        return {str(path.relative_to(out)) for path in (out / "tables" / table).rglob("*.parquet")}

    before, fits = versions("responses"), {path.name for path in out.glob("fits/*/*/sensitivity/*/*")}
    done = run_sgpu("benchmark", "all.yaml", "--set", "sensitivity.n_answers=[2]", cwd=out.parent.parent)
    assert done.returncode == 0, done.stderr
    assert versions("responses") == before
    assert "import   first/one" in done.stderr or "unchanged" in done.stderr
    kept = {path.name for path in out.glob("fits/*/*/sensitivity/*/*")}
    assert fits < kept
    varied = pl.read_delta(str(out / "tables" / "sensitivity")).filter(pl.col("kind") == "n_answers")
    assert set(varied["setting"]) == {"2", "6"}


def test_the_report_is_rendered_anew_from_the_tables(out: Path) -> None:
    page = out / "report" / "index.html"
    page.unlink()
    done = run_sgpu("report", str(out), cwd=out)
    assert done.returncode == 0 and done.stdout.strip() == str(page), done.stderr
    assert "Number of samples" in page.read_text()
