"""Judging stage: votes and a label for every response set, by one judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sgpu.judges.base import JUDGES, asks_model
from sgpu.judges.labels import judge_rows
from sgpu.runtime.stage import Stage
from sgpu.runtime.worker import NOT_CONTENT, StageWorker, name_in
from sgpu.stages.actors import rule_actors
from sgpu.stages.questions import GIVEN_LABELS
from sgpu.stages.run import Run
from sgpu.stages.sample import HeldEngine, asked_model
from sgpu.storage.parquet_files import read_rows
from sgpu.storage.store import Published
from sgpu.storage.tables import LABELS, SECOND_OPINIONS, Table
from sgpu.study.benchmark import Cell
from sgpu.study.models import model_card

VERSION = 4  # also raised when a judge's prompt, or the answers that its guard counts wrong, change


@dataclass(eq=False)
class JudgeWorker(StageWorker):
    """Judges response sets; ``options`` are those of a judge that asks a model.

    ``questions`` is the fingerprint of the data set's questions.
    """

    judge: str = field(metadata=name_in(JUDGES))
    questions: str
    question_files: Sequence[str] = field(metadata=NOT_CONTENT)
    model: HeldEngine | None = None
    options: Mapping[str, float | bool] = field(default_factory=dict)

    def open(self) -> None:
        asked = [self.model.open()] if self.model else []
        self._judge = JUDGES.get(self.judge)(*asked, **self.options)
        self._questions = {
            row["question_id"]: (row["question"], tuple(row["references"] or ()))
            for file in self.question_files
            for row in read_rows(file, ["question_id", "question", "references"]).to_pylist()
        }

    def __call__(self, batch: pa.Table) -> pa.Table:
        return judge_rows(batch, self._questions, self._judge)

    def counts(self, output: pa.Table) -> Mapping[str, float]:
        counted = {"votes": float(sum(len(votes or []) for votes in output["votes"].to_pylist()))}
        guarded = sum(sum(row or []) for row in output["guarded"].to_pylist())
        return counted | ({"guarded": float(guarded)} if guarded else {})


def judge_label(run: Run, cell: Cell) -> str:
    """The name of the judge whose labels the study uses for this cell, as in the labels table."""
    if run.is_given(cell) and run.store.published("labels", cell.partition(judge=GIVEN_LABELS)) is not None:
        return GIVEN_LABELS
    spec = run.study.judge_of(cell.dataset)
    label = _label(spec.name, spec.model)
    return f"{label}--test-{model_card(spec.test_model).name}" if spec.test_model else label


def _label(judge: str, model: str | None) -> str:
    return f"llm-{model_card(model).name}" if model and asks_model(judge) else judge


def plan_judging(run: Run, cell: Cell) -> list[Stage]:
    """Return the stages of the study's judge; test questions may have one of their own.

    None where the labels came with the responses.
    """
    if judge_label(run, cell) == GIVEN_LABELS:
        return []
    spec = run.study.judge_of(cell.dataset)
    if spec.test_model is None:
        return [_judging(run, cell, spec.name, spec.model)]
    # Validation rows are part of what training sees.
    rows = run.questions(cell.dataset).read(["question_id", "split"]).to_pylist()
    test = {row["question_id"] for row in rows if row["split"] == "test"}
    sides = {"test": test, "train": {row["question_id"] for row in rows} - test}
    return [
        _judging(run, cell, spec.name, model, only=sides[part])
        for part, model in (("train", spec.model), ("test", spec.test_model))
        if sides[part]
    ]


def plan_second_judging(run: Run, cell: Cell) -> list[Stage]:
    """Return the stages of further judges, who label the first test questions: do the judges agree?"""
    others = run.study.judge_of(cell.dataset).agreement
    if not others:
        return []
    rows = run.questions(cell.dataset).read(["question_id", "split", "position"]).to_pylist()
    chosen = {r["question_id"] for r in rows if r["split"] == "test" and r["position"] < others[0].sample}
    return [_judging(run, cell, spec.judge, spec.model, SECOND_OPINIONS, only=chosen) for spec in others]


def second_labels(run: Run, cell: Cell) -> dict[str, Published]:
    """The further judges' labels of the sample, by the judge's name."""
    others = run.study.judge_of(cell.dataset).agreement
    names = [_label(spec.judge, spec.model) for spec in others]
    return {name: run.store.require(SECOND_OPINIONS.name, cell.partition(judge=name)) for name in names}


def _judging(
    run: Run,
    cell: Cell,
    judge: str,
    model: str | None,
    table: Table = LABELS,
    only: set[str] | None = None,
) -> Stage:
    questions = run.questions(cell.dataset)
    worker = JudgeWorker(judge, questions.fingerprint, questions.files)
    resources = rule_actors(run, "judge")
    if model and asks_model(judge):
        spec = run.study.judge_of(cell.dataset)
        engine, resources = asked_model(run, cell, "judge", "judge", model)
        worker = replace(worker, model=engine, options={"min_mass": spec.min_mass, "guard": spec.guard})
    return Stage(
        name="judge",
        version=VERSION,
        table=table,
        partition=cell.partition(judge=judge_label(run, cell) if table is LABELS else _label(judge, model)),
        source=run.responses(cell),
        only=None if only is None else frozenset(only),
        columns=("question_id", "status", "error", "answers"),
        worker=worker,
        engine=model if model and asks_model(judge) else judge,
        resources=resources,
    )
