"""The entailment stage on response sets of one's own, under a real local Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgpu.errors import DataError, UsageError
from sgpu.runtime.session import ray_session
from sgpu.stages.cell_frame import cell_frame, cell_inputs, features
from sgpu.stages.encode import plan_encoding
from sgpu.stages.entail import (
    ASKS,
    UNFITTED_THRESHOLD,
    entailment_label,
    entailment_record,
    needs_entailment,
    plan_entailment,
)
from sgpu.stages.judge import plan_judging
from sgpu.stages.preflight import check_study
from sgpu.stages.questions import prepare_questions
from sgpu.stages.run import Run
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell
from tests.entailment.tiny_deberta import write_deberta
from tests.stages.quiet_runs import do, quiet_run

CELL = Cell("m", "own")
ROWS, N = 30, 4
METHODS = ["discrete_semantic_entropy", "kernel_language_entropy", "largest_eigenvalue"]


def response_sets() -> list[dict[str, Any]]:
    return [
        {
            "question_id": f"q{i:02d}",
            "question": f"Capital number {i}?",
            "references": ["Paris"],
            "answers": ["Paris", "It is Paris", "Lyon", "Paris"]
            if i % 2
            else ["Lyon", "Oslo", "Lyon", "Paris"],
        }
        for i in range(ROWS)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Published responses and alias labels, in one Ray session."""
    root = tmp_path_factory.mktemp("entail")
    (root / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in response_sets()))
    run = open_run(root)
    with ray_session():
        prepare_questions(run, "own")
        do(plan_judging, run, CELL)
        do(plan_encoding, run, CELL)
        yield root


def open_run(root: Path, methods: list[str] = METHODS, **entailment: Any) -> Run:
    study = {
        "datasets": [{"kind": "responses", "path": str(root / "own.jsonl"), "model": "m", "name": "own"}],
        "methods": methods,
        "entailment": entailment,
        "resources": {"device": "cpu"},
    }
    return quiet_run(study, root / "out")


def test_the_stage_runs_once_and_an_unchanged_one_is_not_run_again(folder: Path) -> None:
    run = open_run(folder, backend="alias")
    first, second = do(plan_entailment, run, CELL), do(plan_entailment, run, CELL)
    assert first is not None and second is not None
    assert first.rows == ROWS and not first.reused and second.reused
    assert dict(first.rows_by_status) == {"ok": ROWS}
    # Three different texts a row: six pairs.
    assert first.counts["pairs"] == ROWS * 6


def test_methods_see_the_entailments_of_their_own_question(folder: Path) -> None:
    run = open_run(folder, backend="alias")
    do(plan_entailment, run, CELL)
    inputs = cell_inputs(run, CELL)
    frame = cell_frame(inputs).reverse()  # another order than the table's
    known = features(frame, inputs, ASKS)
    assert known.entail is not None and known.contradict is not None and known.clusters is not None
    assert known.entail.shape == known.contradict.shape == (ROWS, N, N)
    for question, clusters, entails in zip(known.question_ids, known.clusters, known.entail, strict=True):
        expected = [0, 1, 2, 0] if int(question[1:]) % 2 else [0, 1, 0, 2]
        assert clusters.tolist() == expected
        assert entails.tolist() == (np.equal.outer(expected, expected) * 1.0).tolist()
    assert features(frame, inputs, {"answers"}).entail is None  # large, and not asked for


def test_without_a_method_that_asks_nothing_is_run_or_needed(folder: Path) -> None:
    run = open_run(folder, methods=["largest_eigenvalue"], backend="alias")
    assert not needs_entailment(run.study)
    assert do(plan_entailment, run, CELL) is None
    inputs = cell_inputs(run, CELL)
    assert inputs.entailment is None and "entailment" not in str(inputs.versions)
    assert features(cell_frame(inputs), inputs, ASKS).clusters is None
    assert entailment_record(run, CELL) == {}


def test_the_cosine_threshold_is_fitted_on_training_questions_and_recorded(folder: Path) -> None:
    run = open_run(folder)
    outcome = do(plan_entailment, run, CELL)
    assert outcome is not None
    record = entailment_record(run, CELL)
    assert record["entailment"] == "cosine-all-MiniLM-L6-v2"
    threshold = record["entailment_threshold"]
    assert isinstance(threshold, float) and threshold != UNFITTED_THRESHOLD
    # "It is Paris" goes with "Paris" and not with "Lyon": what the votes on the training part say.
    clusters = {row["question_id"]: row["clusters"] for row in outcome.published.read().to_pylist()}
    assert clusters["q01"] == [0, 0, 1, 0] and clusters["q00"] == [0, 1, 0, 2]
    again = do(plan_entailment, run, CELL)
    assert again is not None and again.reused


def test_no_test_question_takes_part_in_the_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(folder, model="all-MiniLM-L6-v2")
    seen: list[int] = []

    def spy(encoder: object, answers: list[Any], votes: list[Any]) -> None:
        seen.append(len(answers))

    monkeypatch.setattr("sgpu.stages.entail.fit_threshold", spy)
    monkeypatch.setattr("sgpu.stages.entail.VERSION", 99)
    do(plan_entailment, run, CELL)
    splits = run.store.require("questions", Partition.of(dataset="own")).read(["split"])["split"].to_pylist()
    assert seen == [splits.count("train")] and seen[0] < ROWS
    assert entailment_record(run, CELL)["entailment_threshold"] == UNFITTED_THRESHOLD
    assert "could not be fitted" in run.notes[0]


def test_a_given_threshold_is_used_as_it_is(folder: Path) -> None:
    run = open_run(folder, threshold=1.0)
    outcome = do(plan_entailment, run, CELL)
    assert outcome is not None
    assert entailment_record(run, CELL)["entailment_threshold"] == 1.0
    assert outcome.published.read()["clusters"].to_pylist()[1] == [0, 1, 2, 0]


def test_a_classifier_in_a_folder_is_run_and_named(folder: Path, tmp_path: Path) -> None:
    nli = write_deberta(tmp_path / "tiny-nli")
    run = open_run(folder, backend="deberta", model=str(nli))
    check_study(run.study)
    outcome = do(plan_entailment, run, CELL)
    assert outcome is not None and dict(outcome.rows_by_status) == {"ok": ROWS}
    assert entailment_label(run.study).startswith("deberta-") and "/" not in entailment_label(run.study)
    (first, *_) = outcome.published.read().to_pylist()
    total = np.array([first[name] for name in ("entail", "neutral", "contradict")]).sum(axis=0)
    assert total == pytest.approx(np.ones(N * N))


def test_a_study_whose_classifier_is_not_here_is_refused_before_any_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="hf download microsoft/deberta-large-mnli"):
        check_study(open_run(folder, backend="deberta").study)
    check_study(open_run(folder, methods=["largest_eigenvalue"], backend="deberta").study)
    with pytest.raises(UsageError, match="unknown encoder"):
        check_study(open_run(folder, model="no-such-encoder").study)
    with pytest.raises(UsageError, match="unknown model"):
        check_study(open_run(folder, backend="llm", model="no-such-card").study)


@pytest.mark.parametrize(
    ("entailment", "message"),
    [
        ({"backend": "llm"}, "needs `model`"),
        ({"backend": "alias", "model": "x"}, "takes no `model`"),
        ({"backend": "deberta", "threshold": 0.5}, "`threshold` belongs to backend 'cosine'"),
        ({"revision": "abc"}, "`revision` belongs to backend 'deberta'"),
        ({"threshold": 1.5}, "less than or equal to 1"),
    ],
)
def test_settings_that_do_not_fit_the_backend_are_refused(
    tmp_path: Path, entailment: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        open_run(tmp_path, **entailment)
