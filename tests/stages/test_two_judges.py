"""Training labels by one judge, test labels by another: each side judged by its own, both in one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgpu.models.cards import ModelCard
from sgpu.stages.judge import judge, judge_label
from sgpu.stages.run import Run
from sgpu.storage.store import Partition, Published
from sgpu.storage.tables import LABEL_PARTS, LABELS, QUESTIONS, RESPONSES
from sgpu.study import models
from sgpu.study.benchmark import Cell
from tests.engines.tiny_llama import build
from tests.stages.quiet_runs import quiet_run, table_of

CELL = Cell("answering", "vqa-rad")
SPLITS = ["train", "train", "validation", "test", "test"]
STUDY = {
    "models": [{"name": "answering", "card": "small"}],
    "datasets": [{"kind": "vqa-rad"}],
    "judge": {"name": "llm", "model": "small", "test_model": "large", "min_mass": 0.0},
    "methods": ["largest_eigenvalue"],
    "resources": {"device": "cpu", "judges": 1},
    "tracking": {"mlflow": "none"},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("small", "large"):
        card = ModelCard(
            name=name, source=str(build(tmp_path / name)), licence="MIT", memory_gib=0.1,
            engine="transformers", dtype="float32", max_model_len=1024,
        )  # fmt: skip
        monkeypatch.setitem(models.MODELS, name, card)
    made = quiet_run(STUDY, tmp_path / "out")
    ids = [f"q{i}" for i in range(len(SPLITS))]
    questions = [
        {"question_id": i, "question": "Which?", "references": ["x"], "split": split, "position": 0}
        for i, split in zip(ids, SPLITS, strict=True)
    ]
    answers = [{"question_id": i, "status": "ok", "answers": ["x", "y", i]} for i in ids]
    dataset, cell = Partition.of(dataset=CELL.dataset), Partition.of(model=CELL.model, dataset=CELL.dataset)
    made.store.write(QUESTIONS, dataset, table_of(QUESTIONS.schema, questions), "a" * 12, {})
    made.store.write(RESPONSES, cell, table_of(RESPONSES.schema, answers), "b" * 12, {})
    return made


def part(run: Run, name: str, model: str) -> Published:
    values = {"model": CELL.model, "dataset": CELL.dataset, "judge": f"llm-{model}", "part": name}
    return run.store.require(LABEL_PARTS.name, Partition.of(**values))


def test_each_side_has_its_judge_and_a_second_run_does_nothing(run: Run) -> None:
    assert judge_label(run, CELL) == "llm-small--test-large"
    judge(run, CELL)
    train, test = part(run, "train", "small"), part(run, "test", "large")
    assert train.read(["question_id"])["question_id"].to_pylist() == ["q0", "q1", "q2"]
    assert test.read(["question_id"])["question_id"].to_pylist() == ["q3", "q4"]
    labels = run.store.require(
        LABELS.name, Partition.of(model=CELL.model, dataset=CELL.dataset, judge=judge_label(run, CELL))
    )
    merged = {row["question_id"]: row for row in labels.read().to_pylist()}
    assert list(merged.values()) == [*train.read().to_pylist(), *test.read().to_pylist()]
    assert labels.manifest["judges"] == {"train": "llm-small", "test": "llm-large"}
    again = judge(run, CELL)
    assert again is not None and again.reused
    assert [outcome.reused for outcome in run.outcomes] == [False] * 3  # what is told once is not told again
