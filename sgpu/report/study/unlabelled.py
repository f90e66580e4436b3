"""Cells without labels: which are so by design, what is said of them, and which miss more than is allowed."""

from __future__ import annotations

from collections import Counter

import polars as pl

from sgpu.errors import QuarantineError
from sgpu.report.study.data import RankedQuestion
from sgpu.report.study.study_frames import published_frame
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import cell_frame, cell_inputs, published_labels
from sgpu.storage.store import Partition
from sgpu.study.benchmark import Cell

RANKED = 200  # questions of a cell that the page lists


def unlabelled(run: Run, cell: Cell) -> bool:
    """Whether nothing was given by which answers could be judged: no label and no reference at all."""
    labels = published_labels(run, cell)
    if labels.read(["label"])["label"].null_count < labels.rows:
        return False
    questions = run.store.require("questions", Partition.of(dataset=cell.dataset))
    return not any(questions.read(["references"])["references"].to_pylist())


def check_labels(run: Run) -> None:
    """Raise QuarantineError if a cell misses more labels than the study allows; none by design is allowed."""
    bound = run.study.bounds.missing_labels
    for cell in run.study.cells():
        labels = published_labels(run, cell)
        missing = labels.read(["label"])["label"].null_count
        if missing > bound * labels.rows and not unlabelled(run, cell):
            raise QuarantineError(
                f"the study is finished, but {missing} of {labels.rows} questions of {cell} have no label, "
                f"more than the bound of {bound:.0%}. They are left out of every metric; "
                "bounds.missing_labels in the study file sets the bound."
            )


def ranking(run: Run, cell: Cell) -> list[RankedQuestion]:
    """The test questions of a cell without labels, the most doubtful first.

    They stand in the order of their mean rank over the scores that need no labels; at most `RANKED` of them.
    """
    scores = published_frame(run, "predictions", cell).filter(
        (pl.col("split") == "test") & pl.col("confidence").is_not_nan() & pl.col("confidence").is_not_null()
    )
    if scores.is_empty():
        return []
    placed = scores.with_columns(pl.col("confidence").rank("average").over("method").alias("place"))
    order = placed.group_by("question_id").agg(pl.col("place").mean()).sort("place", "question_id")
    said = {row["question_id"]: row for row in cell_frame(cell_inputs(run, cell)).to_dicts()}
    values = {(row["question_id"], row["method"]): row["confidence"] for row in scores.to_dicts()}
    methods = sorted(set(scores["method"]))
    made = []
    for question_id in order["question_id"].head(RANKED):
        answers = said[question_id]["answers"] or [""]
        answer, times = Counter(answers).most_common(1)[0]
        made.append(
            RankedQuestion(
                model=cell.model, dataset=cell.dataset, question_id=question_id,
                question=said[question_id]["question"], answer=answer, times=times, n=len(answers),
                scores={name: values.get((question_id, name)) for name in methods},
            )
        )  # fmt: skip
    return made
