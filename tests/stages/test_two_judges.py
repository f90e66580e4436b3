"""Training labels by one judge, test labels by another: each side judged by its own, both in one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgpu.models.cards import ModelCard
from sgpu.stages.judge import judge_label, plan_judging
from sgpu.stages.run import Run
from sgpu.storage.store import Partition
from sgpu.storage.tables import QUESTIONS, RESPONSES
from sgpu.study import models
from sgpu.study.benchmark import Cell
from tests.engines.tiny_llama import build
from tests.stages.quiet_runs import do, quiet_run, table_of

CELL = Cell("answering", "vqa-rad")
SPLITS = ["train", "train", "validation", "test", "test"]
STUDY = {
    "models": [{"name": "answering", "card": "small"}],
    "datasets": [{"kind": "vqa-rad"}],
    "judge": {"name": "llm", "model": "small", "test_model": "large", "min_mass": 0.0},
    "methods": ["largest_eigenvalue"],
    "resources": {"device": "cpu", "actors": {"judge": 1}},
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


def test_each_side_has_its_judge_and_a_second_run_does_nothing(run: Run) -> None:
    assert judge_label(run, CELL) == "llm-small--test-large"
    outcome = do(plan_judging, run, CELL)
    assert outcome.rows == len(SPLITS)
    assert [(pool.engine, pool.rows) for pool in run.pools] == [("small", 3), ("large", 2)]
    settings = {one["settings"]["model"]["model"] for one in outcome.published.manifest["stages"]}
    assert {Path(model).name for model in settings} == {"small", "large"}
    again = do(plan_judging, run, CELL)
    assert again.reused and len(run.outcomes) == 1  # what is told once is not told again


@pytest.mark.parametrize(("model", "side"), [("small", "train"), ("large", "test")])
def test_a_side_has_the_labels_that_its_judge_gives_alone(run: Run, model: str, side: str) -> None:
    together = do(plan_judging, run, CELL).published.read().to_pylist()
    study = run.study.model_dump(mode="json") | {"judge": {"name": "llm", "model": model, "min_mass": 0.0}}
    alone = replace(run, study=type(run.study).model_validate(study), outcomes=[], pools=[])
    rows = {row["question_id"]: row for row in do(plan_judging, alone, CELL).published.read().to_pylist()}
    own = [row for row, split in zip(together, SPLITS, strict=True) if (split == "test") == (side == "test")]
    assert own and own == [rows[row["question_id"]] for row in own]
