"""A package outside of ours with one plug-in of each kind: installed offline, a study run with it, logs read.

Everything runs in processes of its own, whose path has the folder of the package; here it is not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sgpu.encoders import load_encoder
from sgpu.errors import IntegrityError, UsageError
from sgpu.fitted import load_model
from sgpu.gp import GPClassifier

PACKAGE = Path(__file__).parent / "plugin"
STUDY = """
name: house
models: [{name: adder, engine: parrot, card: tally}]
datasets: [{kind: sums, n_train: 80, n_test: 40}]
methods: [sgpu, distinct_answers, discrete_semantic_entropy]
sampling: {n: 5}
judge: {name: exact}
entailment: {backend: same-text}
encoder: {name: letters}
classifier: {kernel: ard-rbf, inducing: 8, other_n: none}
evaluation: {bootstrap: 100}
resources: {device: cpu}
tracking: {mlflow: none}
"""
BY_KIND = {
    "engines": "parrot", "datasets": "sums", "judges": "exact", "methods": "distinct_answers",
    "encoders": "letters", "entailment": "same-text", "kernels": "ard-rbf", "log-formats": "house-log",
    "models": "tally",
}  # fmt: skip
LIST = f"""
import json, sys
from dataclasses import asdict
from sgpu.cli.listing import listed
listings = {{kind: [asdict(row) for row in listed(kind)] for kind in {list(BY_KIND)!r}}}
print(json.dumps({{"listings": listings, "imported": "sgpu_house.logs" in sys.modules}}))
"""


@dataclass(frozen=True)
class House:
    """A working folder and the folder that the package is installed in."""

    folder: Path
    packages: Path

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(self.packages), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, capture_output=True, text=True, timeout=500,
            env=environment,
        )  # fmt: skip

    def sgpu(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.python("-c", "from sgpu.cli import main; main()", *words)

    def write(self, text: str, name: str = "house.yaml") -> str:
        (self.folder / name).write_text(text)
        return name

    def fit(self) -> Path:
        """The folder of the classifier that the study has fitted."""
        (fitted,) = self.folder.glob("runs/house/fits/adder/sums/*/gp.json")
        return fitted.parent


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """The package is built from a copy, as a build writes beside its sources."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(PACKAGE, folder / "source")
    made = House(folder, folder / "packages")
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps",
         "--target", str(made.packages), str(folder / "source")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    return made


@pytest.fixture(scope="module")
def run(house: House) -> Path:
    """The folder of a finished study in which every part is the plug-in's."""
    done = house.sgpu("benchmark", house.write(STUDY))
    assert done.returncode == 0, done.stderr
    return house.folder / "runs" / "house"


def test_a_study_of_nothing_but_plugins_is_measured(run: Path) -> None:
    rows = pl.read_csv(run / "metrics.csv").filter(pl.col("metric") == "auroc")
    auroc = dict(zip(rows["method"], rows["value"], strict=True))
    assert set(auroc) == {"sgpu", "distinct_answers", "discrete_semantic_entropy"}
    assert min(auroc.values()) > 0.6
    assert (run / "report" / "index.html").is_file()


def test_distribution_and_version_are_in_the_fingerprint_of_each_stage_that_used_a_plugin(run: Path) -> None:
    used: dict[str, set[str]] = {}
    for manifest in run.glob("tables/**/_manifest.json"):
        content = json.loads(manifest.read_text())
        settings = content.get("settings") or {}
        keys = dict(
            chain.from_iterable(
                one.items() for one in (content, settings, *settings.values()) if isinstance(one, dict)
            )
        )
        versions = {key: value for key, value in keys.items() if key.startswith("plug-in ")}
        assert set(versions.values()) <= {"sgpu-house 1.0"}
        used.setdefault(content["stage"], set()).update(versions)
    assert {stage: keys for stage, keys in used.items() if keys} == {
        "questions": {"plug-in data set sums"},
        "sample": {"plug-in engine parrot", "plug-in model tally"},
        "judge": {"plug-in judge exact"},
        "encode": {"plug-in encoder letters"},
        "entail": {"plug-in entailment backend same-text"},
        "predict": {"plug-in method distinct_answers"},
    }


def test_the_same_study_again_runs_nothing(house: House, run: Path) -> None:
    done = house.sgpu("benchmark", "house.yaml")
    assert done.returncode == 0, done.stderr
    assert "run again" in done.stderr + done.stdout
    assert len(list(run.glob("fits/adder/sums/*/gp.json"))) == 1


def test_every_plugin_is_listed_with_its_package(house: House) -> None:
    told = json.loads(house.python("-c", LIST).stdout)
    for kind, name in BY_KIND.items():
        (row,) = [row for row in told["listings"][kind] if row["name"] == name]
        assert (row["package"], row["version"]) == ("sgpu-house", "1.0")
    assert told["imported"] is False  # what is shown of a log format needs no import


def test_rows_of_its_log_format_are_told_from_others(house: House) -> None:
    row = {"house_id": "r-1", "asked": "?", "replies": ["a", "b"], "at": "2026-11-20T00:00:00Z", "model": "m"}
    house.write(json.dumps(row) + "\n", "logs.jsonl")
    for words in ((), ("--format", "house-log")):
        done = house.sgpu("logs", "check", "logs.jsonl", *words)
        assert "house-log" in done.stdout, done.stdout + done.stderr


def test_without_the_package_its_fit_is_refused_and_the_package_named(house: House, run: Path) -> None:
    with pytest.raises(IntegrityError, match=r"plug-in kernel ard-rbf.*sgpu-house 1\.0"):
        GPClassifier.load(house.fit())
    with pytest.raises(UsageError, match="unknown kernel 'ard-rbf'"):
        GPClassifier("ard-rbf")


# The study of this file with what is ours in the place of the plug-ins.
OWN_PARTS = {
    "engine": "openai", "kind": "worldfacts", "judge": "alias", "encoder": "all-MiniLM-L6-v2",
    "kernel": "matern15", "method": "self_consistency", "entailment": "alias",
    "card": "smollm2-135m-instruct",
}  # fmt: skip
PLUGINS = {
    "engine": "parrot", "kind": "sums", "judge": "exact", "encoder": "letters", "kernel": "ard-rbf",
    "method": "distinct_answers", "entailment": "same-text", "card": "tally",
}  # fmt: skip


@pytest.mark.parametrize("part", OWN_PARTS)
@pytest.mark.parametrize("path", ["planted:make", "planted.make", "./planted.py:make"])
def test_a_path_in_a_study_is_refused_and_not_imported(
    part: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sgpu.stages.preflight import check_study
    from sgpu.study.benchmark import load_study

    _plant(tmp_path, monkeypatch)
    text = STUDY
    for key, name in {**OWN_PARTS, part: f"'{path}'"}.items():
        text = text.replace(PLUGINS[key], name)
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(UsageError, match="unknown"):
        check_study(load_study(tmp_path / "s.yaml"))
    assert not (tmp_path / "imported").exists()


def test_a_path_in_a_bundle_is_refused_and_not_imported(
    house: House, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(tmp_path, monkeypatch)
    shutil.copytree(house.fit(), tmp_path / "fit")
    _edit(tmp_path / "fit" / "gp.json", lambda fit: fit.pop("plugins"), kernel="planted:make")
    with pytest.raises(UsageError, match="unknown kernel 'planted:make'"):
        GPClassifier.load(tmp_path / "fit")
    with pytest.raises((UsageError, IntegrityError)):
        load_model(tmp_path / "fit")
    with pytest.raises(UsageError, match="unknown encoder 'planted:make'"):
        load_encoder("planted:make")
    assert not (tmp_path / "imported").exists()


def test_a_path_on_the_command_line_is_refused_and_not_imported(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder / "planted.py").write_text("open('imported', 'w').close()\n")
    house.write("{}\n", "logs.jsonl")
    for words in (("logs", "check", "logs.jsonl", "--format", "planted:make"), ("list", "planted:make")):
        done = house.sgpu(*words)
        assert done.returncode == 2 and "unknown" in done.stderr
    assert not (house.folder / "imported").exists()


def _plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "planted.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)


def _edit(path: Path, change: Any, **settings: str) -> None:
    content = json.loads(path.read_text())
    change(content)
    content["settings"].update(settings)
    path.write_text(json.dumps(content))
