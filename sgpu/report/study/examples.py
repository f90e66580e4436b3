"""Response sets of a cell that the report shows in full."""

from __future__ import annotations

from typing import Any

import polars as pl

from sgpu.report.study.data import Example
from sgpu.report.study.study_frames import agreement_shares, published_frame
from sgpu.report.study.thumbnails import thumbnails
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import cell_frame, cell_inputs
from sgpu.stages.fit import METHOD
from sgpu.study.benchmark import Cell

EXAMPLES_OF_A_KIND = 2


def examples(run: Run, cell: Cell) -> list[Example]:
    """A few test questions of each kind that the report shows; without a classifier there are none."""
    predictions = published_frame(run, "predictions", cell).filter(
        (pl.col("method") == METHOD) & (pl.col("split") == "test") & pl.col("label").is_not_null()
    )
    inputs = cell_inputs(run, cell)
    shares = agreement_shares(inputs, predictions["question_id"].to_list())
    predictions = predictions.with_columns(pl.Series("agreement", shares, dtype=pl.Float64))
    doubted = (pl.col("label") == 0) & (pl.col("agreement") > 0.5) & (pl.col("probability") < 0.5)
    chosen = pl.concat(
        [
            predictions.filter(doubted)
            .sort("agreement", "question_id", descending=[True, False])
            .head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("label") == 1)
            .sort("probability", descending=True)
            .head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("label") == 0)
            .sort("probability", descending=True)
            .head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("label") == 0).sort("probability").head(EXAMPLES_OF_A_KIND),
            predictions.filter(pl.col("unsafe")).head(EXAMPLES_OF_A_KIND),
        ]
    ).unique("question_id", keep="first", maintain_order=True)
    frame = cell_frame(inputs)
    rows = {row["question_id"]: row for row in frame.to_dicts()}
    pictures = thumbnails(inputs.questions, chosen["question_id"].to_list())
    return [
        _example(cell, rows[made["question_id"]], made, pictures.get(made["question_id"]))
        for made in chosen.to_dicts()
    ]


def _example(cell: Cell, row: dict[str, Any], made: dict[str, Any], image: str | None) -> Example:
    answers = row["answers"] or []
    return Example(
        model=cell.model,
        dataset=cell.dataset,
        question_id=row["question_id"],
        question=row["question"],
        references=row["references"] or [],
        answers=answers,
        votes=row["votes"] or [None] * len(answers),
        label=row["label"],
        eigenvalues=row["eigenvalues"] or [],
        probability=made["probability"],
        sd=made["sd"],
        unsafe=made["unsafe"],
        agreement=made["agreement"],
        image=image,
    )
