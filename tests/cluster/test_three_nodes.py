"""A whole study on a real cluster of three nodes, of which two are taken away while they work.

`make test-cluster`; seven to eleven minutes on two busy cores. Files are shared: all nodes are one machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.cluster.nodes import LocalCluster, Node, with_folders
from tests.cluster.word_llama import build, write_questions

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
SLOWED = Path(__file__).parent / "slowed"
SGPU = ("-c", "from sgpu.cli import main; main()")
RUN_TIMEOUT_S = 600
ROWS = 88  # of each of the two data sets
STUDY = """
name: spread
models: [{{name: words, card: {model}, engine: transformers}}]
datasets:
  - {{kind: jsonl, name: first, path: first.jsonl, n_train: 48, n_test: 40}}
  - {{kind: jsonl, name: second, path: second.jsonl, n_train: 48, n_test: 40}}
methods: [sgpu, global_sgpu, spectral_entropy, predictive_entropy]
sampling: {{n: 6, max_tokens: 1, temperature: 0.6, prompt: "{{question}}"}}
resources: {{device: cpu, actors: {{sample: 3}}, fitters: 3, sample_block_rows: 4}}
evaluation: {{bootstrap: 100}}
tracking: {{mlflow: none}}
"""
TABLES = ("questions", "responses", "labels", "spectra", "predictions")


@dataclass(frozen=True)
class Study:
    """The files of the study, and the marks that the nodes make while `slow` stands among them."""

    file: Path
    marks: Path

    def begun(self, kind: str) -> dict[str, int]:
        """Node id -> how often a process of that node began this kind of work."""
        return self._count(kind, "begin")

    def sampled_at_once(self) -> set[str]:
        """How many prompts the calls of the engines had, as "of-4"."""
        words = [file.read_text().split() for file in self.marks.glob("sample-*")]
        return {word for given in words for word in given if word.startswith("of-")}

    def at_work(self, kind: str, node: Node) -> bool:
        """Whether the node has begun something that it has not ended."""
        ended = self._count(kind, "end")
        return self.begun(kind).get(node.node_id, 0) > ended.get(node.node_id, 0)

    def _count(self, kind: str, what: str) -> dict[str, int]:
        found: Counter[str] = Counter()
        for file in self.marks.glob(f"{kind}-*"):
            found[file.name.split("-")[1]] += file.read_text().split().count(what)
        return dict(found)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("spread")
    model = build(folder / "model")
    for seed, name in enumerate(("first", "second")):
        write_questions(model, folder / f"{name}.jsonl", ROWS, seed)
    (folder / "spread.yaml").write_text(STUDY.format(model=model))
    (folder / "marks").mkdir()
    return Study(folder / "spread.yaml", folder / "marks")


@pytest.fixture(scope="module")
def cluster(study: Study) -> Iterator[LocalCluster]:
    cluster = LocalCluster(**with_folders({"SGPU_TEST_MARKS": str(study.marks)}, SLOWED, ROOT))
    try:
        for num_cpus in (4, 2, 2):
            cluster.add(num_cpus)
        yield cluster
    finally:
        cluster.stop()


def start(
    cluster: LocalCluster, study: Study, out: str, address: str, **variables: str
) -> subprocess.Popen[str]:
    command = [sys.executable, *SGPU, "benchmark", study.file.name, "--out", out, "--address", address]
    environment = {**cluster.environment, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen(
        command, cwd=study.file.parent, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(cluster: LocalCluster, study: Study) -> Path:
    """The results of a run that all three nodes finished."""
    process = start(cluster, study, "undisturbed", cluster.address)
    stdout, stderr = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0, stderr
    page = study.file.parent / "undisturbed" / "report" / "index.html"
    assert stdout.strip() == str(page) and page.is_file()
    assert "sample   words/first" in stderr
    return study.file.parent / "undisturbed"


@pytest.fixture(scope="module")
def disturbed(cluster: LocalCluster, study: Study, undisturbed: Path) -> Path:
    """The results of a run that lost a node while sampling and another while fitting."""
    _, second, third = cluster.nodes
    (study.marks / "slow").write_text(json.dumps({"sample": 1.0, "fit": 8.0}))
    process = start(cluster, study, "disturbed", "auto")
    files = study.file.parent / "disturbed" / "tables" / "responses"
    try:
        wait_for(process, lambda: study.at_work("sample", second) and len(list(files.rglob("*.parquet"))) > 3)
        second.take_away()
        wait_for(process, lambda: study.at_work("fit", third))
        third.take_away()
        _, stderr = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == 0, stderr
    finally:
        process.kill()
    return study.file.parent / "disturbed"


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not happened():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"it did not come to that: {process.communicate()[1]}")
        time.sleep(0.1)


def rows(out: Path, table: str) -> pl.DataFrame:
    """A table in canonical order."""
    frame = pl.read_delta(str(out / "tables" / table))
    keys = [name for name in ("model", "dataset", "question_id", "method", "judge") if name in frame.columns]
    return frame.select(sorted(frame.columns)).sort(keys)


@pytest.mark.parametrize("table", TABLES)
def test_a_run_that_lost_two_nodes_has_the_tables_of_one_that_lost_none(
    undisturbed: Path, disturbed: Path, table: str
) -> None:
    assert_frame_equal(rows(disturbed, table), rows(undisturbed, table), check_exact=True)


def test_the_metrics_are_the_same(undisturbed: Path, disturbed: Path) -> None:
    found, wanted = (pl.read_csv(out / "metrics.csv") for out in (disturbed, undisturbed))
    keys = ["dataset", "model", "method", "metric"]
    assert not wanted.select(keys).is_duplicated().any()
    aurocs = wanted.filter(pl.col("metric") == "auroc")
    assert set(aurocs["method"]) == {"sgpu", "global_sgpu", "spectral_entropy", "predictive_entropy"}
    assert aurocs["value"].is_not_null().all()
    assert_frame_equal(found.sort(keys), wanted.sort(keys), check_exact=True)


@pytest.mark.parametrize("table", ["responses", "labels", "spectra"])
def test_every_row_is_there_once_and_none_is_blamed_for_the_loss(disturbed: Path, table: str) -> None:
    frame = rows(disturbed, table)
    assert frame.select("dataset", "question_id").n_unique() == frame.height == 2 * ROWS
    assert (frame["status"] == "ok").all()


def test_the_rows_of_a_lost_node_are_sampled_again_as_they_were(study: Study, disturbed: Path) -> None:
    """In whole blocks: by themselves they would keep engines from the work of all others."""
    assert study.sampled_at_once() == {"of-4"}


def test_sampling_and_fitting_were_spread_over_the_nodes(
    cluster: LocalCluster, study: Study, disturbed: Path
) -> None:
    head, second, third = (node.node_id for node in cluster.nodes)
    assert study.begun("sample").keys() == {head, second, third}
    assert study.begun("fit").keys() == {head, third}


def test_a_wrong_token_is_refused_before_any_work(
    cluster: LocalCluster, study: Study, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("0" * 64)
    process = start(cluster, study, "refused", cluster.address, RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2 and "has the token of the cluster" in stderr, stderr
    assert not (study.file.parent / "refused" / "tables").exists()
