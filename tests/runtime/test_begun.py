"""Runs that go on on a machine whose CPU computes in another dtype, with a tiny model."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sgpu.engines.base import EngineConfig
from sgpu.errors import StageError
from sgpu.hashing import derived_seed
from sgpu.models.cards import ModelCard
from sgpu.runtime.progress import Progress
from sgpu.runtime.run import Run
from sgpu.runtime.session import ray_session
from sgpu.runtime.stage import Outcome, Stage
from sgpu.stages.embedding_study import embedding_study
from sgpu.stages.encode import encode
from sgpu.stages.entail import entail
from sgpu.stages.hidden import hidden_states
from sgpu.stages.judge import judge
from sgpu.stages.questions import prepare
from sgpu.stages.sample import _with_short_seeds, engine_of, sample
from sgpu.storage.store import Store, fingerprint
from sgpu.study import models
from sgpu.study.benchmark import Cell, Study
from tests.engines.tiny_llama import build
from tests.entailment.tiny_deberta import write_deberta
from tests.stages.test_hidden import RunHere

CELL, GIVEN = Cell("tiny", "worldfacts"), Cell("m", "own")
ROWS, BLOCK = 14, 2


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("begun") / "tiny-llama")


@pytest.fixture(autouse=True)
def tiny(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model as a card, which answers and judges."""
    card = ModelCard(
        name="tiny", source=str(weights), licence="MIT", memory_gib=0.1, engine="transformers",
        max_model_len=1024,
    )  # fmt: skip
    monkeypatch.setitem(models.MODELS, "tiny", card)


def open_run(kind: type[Run], out: Path, **changes: Any) -> Run:
    study = {
        "models": ["tiny"],
        "datasets": [{"kind": "worldfacts", "n_train": 8, "n_test": 6}],
        "methods": ["cov_eigenscore"],
        "judge": {"name": "llm", "model": "tiny", "min_mass": 0.0},
        "sampling": {"n": 3, "max_tokens": 4},
        "resources": {"device": "cpu", "sample_block_rows": BLOCK},
        "tracking": {"mlflow": "none"},
    }
    return kind(Study.model_validate(study | changes), out, Progress(Console(file=io.StringIO())))


def on_a_cpu_of(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "cpu_dtype", lambda: dtype)


def dtype_of(outcome: Outcome) -> str:
    return str(outcome.published.manifest["settings"]["model"]["dtype"])


def ids(file: Path) -> set[str]:
    return set(pq.read_table(file, columns=["question_id"])["question_id"].to_pylist())


def _stopped(*_: object) -> None:
    raise StageError("stopped")


@pytest.mark.timeout(600)
def test_what_was_begun_in_one_dtype_is_finished_in_it_and_nothing_is_sampled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    on_a_cpu_of("bfloat16", monkeypatch)
    with ray_session():
        with monkeypatch.context() as stopped:
            prepare(open_run(Run, here), CELL.dataset)
            stopped.setattr(Store, "publish", _stopped)
            with pytest.raises(StageError, match="stopped"):
                sample(open_run(Run, here), CELL)
        shutil.copytree(here, there)
        lost, *kept = sorted(there.glob("tables/responses/**/*.parquet"))
        under_way = ids(lost)
        lost.unlink()
        for record in there.glob("checkpoints/**/*.parquet"):
            if ids(record) & under_way:
                record.unlink()
        written = {file: file.stat().st_mtime_ns for file in kept}

        on_a_cpu_of("float32", monkeypatch)
        outcome = sample(open_run(Run, there), CELL)
    assert dtype_of(outcome) == "bfloat16"
    assert (outcome.rows, outcome.rows_resumed) == (ROWS, ROWS - len(under_way))
    assert {file: file.stat().st_mtime_ns for file in kept} == written
    assert len(set(outcome.published.read(["settings_sha256"])["settings_sha256"].to_pylist())) == 1


@pytest.mark.parametrize(("before", "now"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_what_was_published_in_one_dtype_stays_and_a_new_table_takes_this_machines_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str
) -> None:
    on_a_cpu_of(before, monkeypatch)
    run = open_run(RunHere, tmp_path)
    prepare(run, CELL.dataset)
    assert dtype_of(sample(run, CELL)) == before
    judge(run, CELL)
    on_a_cpu_of(now, monkeypatch)
    done = [stage(open_run(RunHere, tmp_path), CELL) for stage in (sample, judge, hidden_states)]
    assert [(outcome.reused, dtype_of(outcome)) for outcome in done if outcome] == [
        (True, before),
        (True, before),
        (False, now),
    ]


def test_what_was_sampled_with_seeds_of_31_bits_stays_and_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(RunHere, tmp_path)
    prepare(run, CELL.dataset)
    asked: list[Stage] = []
    with monkeypatch.context() as looked_at:
        looked_at.setattr(RunHere, "run_stage", lambda self, stage: asked.append(stage))
        sample(run, CELL)
    before = _with_short_seeds(asked[0])
    first = run.run_stage(before)
    again = sample(open_run(RunHere, tmp_path), CELL)
    assert again.reused and again.published.fingerprint == first.published.fingerprint
    (settings,) = set(again.published.read(["settings_sha256"])["settings_sha256"].to_pylist())
    assert settings == fingerprint(before.settings)
    rows = again.published.read(["question_id", "seed"]).to_pylist()
    seeds = {row["question_id"]: row["seed"] for row in rows}
    parts = [str(run.study.seed), CELL.model, CELL.dataset]
    assert seeds == {question: derived_seed(*parts, question) for question in seeds}
    other_run = open_run(RunHere, tmp_path / "other")
    prepare(other_run, CELL.dataset)
    other = sample(other_run, CELL)
    assert max(other.published.read(["seed"])["seed"].to_pylist()) >= 2**31


def test_a_stage_keeps_the_fingerprint_that_it_had_when_all_machines_computed_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "embedded_weights", lambda name: tmp_path / name)
    on_a_cpu_of("bfloat16", monkeypatch)
    asked: list[Stage] = []
    monkeypatch.setattr(RunHere, "run_stage", lambda self, stage: asked.append(stage))
    run = open_run(RunHere, tmp_path, models=["smollm2-135m-instruct"])
    prepare(run, CELL.dataset)
    sample(run, Cell("smollm2-135m-instruct", CELL.dataset))
    (stage,) = asked
    own = {"engine", "model", "prompt", "sampling", "seed", "seed_bits", "system_prompt"}
    assert set(stage.settings) == own
    assert stage.settings["model"] == {
        "model": "embedded:smollm2-135m-instruct", "revision": None, "dtype": "bfloat16",
        "max_model_len": 1024, "max_num_seqs": 320, "tensor_parallel_size": 1, "device": "cpu",
        "base_url": None, "api_key_env": None, "requests_per_minute": None, "options": {},
        "prompt_form": "smollm2",
    }  # fmt: skip


def test_what_a_server_computes_in_is_not_decided_by_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"name": "tiny", "engine": "openai", "base_url": "http://test/v1"}
    run = open_run(RunHere, tmp_path, models=[spec])
    configs: list[EngineConfig] = []
    for dtype in ("bfloat16", "float32"):
        on_a_cpu_of(dtype, monkeypatch)
        configs.append(engine_of(run, run.study.model("tiny"))[1])
    assert configs[0] == configs[1]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Response sets of one's own, published, and a classifier."""
    root = tmp_path_factory.mktemp("given")
    rows = [
        {"question_id": f"q{i}", "question": "?", "references": [f"Rome {i}"], "answers": ["Rome", "Oslo"]}
        for i in range(8)
    ]
    (root / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_deberta(root / "nli")
    prepare(open_given(RunHere, root), "own")
    return root


def open_given(kind: type[Run], root: Path, **entailment: Any) -> Run:
    own = {"kind": "responses", "path": str(root / "own.jsonl"), "model": "m", "name": "own"}
    changes = {"models": [], "datasets": [own], "judge": {"name": "alias"}, "entailment": entailment}
    changes["sensitivity"] = {"embedding_sets": 2}
    methods = ["discrete_semantic_entropy", "largest_eigenvalue"]
    return open_run(kind, root / "out", **changes, methods=methods)


def made(root: Path, cpu: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The stage of an encoder or of an entailment backend on such a CPU, which does not run."""
    asked: list[Stage] = []
    with monkeypatch.context() as patch:
        patch.setattr("sgpu.runtime.run.cpu_dtype", lambda: cpu)
        patch.setattr(RunHere, "run_stage", lambda self, stage: asked.append(stage))
        if backend == "encode":
            encode(open_given(RunHere, root), GIVEN)
        elif backend == "embed":
            embedding_study(open_given(RunHere, root), GIVEN)
        else:
            options = {"threshold": 0.8} if backend == "cosine" else {"model": str(root / "nli")}
            entail(open_given(RunHere, root, backend=backend, **options), GIVEN)
    (stage,) = asked
    return stage


def computes_in(stage: Stage) -> str:
    part = stage.arguments.get("encoder")
    holder = part if isinstance(part, dict) else stage.arguments.get("options") or stage.arguments
    return str(holder["dtype"])


@pytest.mark.parametrize("backend", ["encode", "embed", "cosine", "deberta"])
def test_what_an_encoder_or_a_classifier_began_is_finished_in_its_dtype(
    given: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = {dtype: made(given, dtype, backend, monkeypatch) for dtype in ("bfloat16", "float32")}
    for dtype, stage in stages.items():
        recorded = stage.settings["encoder"] if backend == "embed" else stage.settings
        assert computes_in(stage) == recorded["dtype"] == dtype
    first = stages["bfloat16"]
    store = open_given(RunHere, given).store
    begun = store.staging(first.table.name, first.partition, fingerprint(first.content))
    begun.make_folder()
    (begun / "rows.parquet").write_bytes(b"")
    assert computes_in(made(given, "float32", backend, monkeypatch)) == "bfloat16"
    begun.delete()


def test_spectra_of_before_the_dtype_was_recorded_stay(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_given(RunHere, given)
    with monkeypatch.context() as before:
        before.setattr("sgpu.stages.encode.encoder_dtypes", lambda run, dtype: (dtype,))
        assert not encode(run, GIVEN).reused
    outcome = encode(run, GIVEN)
    assert outcome.reused and outcome.published.manifest["settings"]["dtype"] == "auto"
