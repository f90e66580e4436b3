"""Every method under the labels of every judge: nothing is sampled, embedded or fitted again."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.evaluation.cell import evaluate_cell
from sgpu.runtime.run import Run
from sgpu.stages.cell_frame import cell_inputs
from sgpu.stages.judge import second_labels
from sgpu.stages.measure import columns_of, evaluation_settings, provenance
from sgpu.stages.variants import kept
from sgpu.storage.store import Partition, Published
from sgpu.study.benchmark import Cell


def rejudged(run: Run, cell: Cell) -> list[dict[str, object]]:
    """Rows of the sensitivity table, on the test questions that all judges have seen.

    The maps of scores to probabilities stay those of the study's judge: other labels are for tests only.
    """
    others = second_labels(run, cell)
    partition = Partition.of(model=cell.model, dataset=cell.dataset)
    predictions = pl.DataFrame(pl.from_arrow(run.store.require("predictions", partition).read()))
    said = columns_of(predictions)
    if not others or not said.confidence:
        return []
    seen = [_labels(table, said.question_ids) for table in others.values()]
    shared = np.logical_and.reduce([known for _, known in seen])
    test = said.split == "test"
    split = np.where(test & ~shared, "not seen by all", said.split)
    inputs = cell_inputs(run, cell)
    base = provenance(run, cell, inputs)
    judged = {inputs.judge: said.label}
    judged |= {name: np.where(test, label, said.label) for name, (label, _) in zip(others, seen, strict=True)}
    rows = []
    for judge, label in judged.items():
        record = {**base, "judge": judge, "varied": "judge", "setting": judge}
        settings = evaluation_settings(run, record)
        found = evaluate_cell(said.confidence, said.probability, label, split, settings=settings)
        rows += kept("judge", judge, found)
    return rows


def _labels(table: Published, question_ids: list[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(Q,) labels, NaN where the judge could not say, and (Q,) whether it was asked."""
    found = {row["question_id"]: row["label"] for row in table.read(["question_id", "label"]).to_pylist()}
    label = [np.nan if (given := found.get(q)) is None else float(given) for q in question_ids]
    return np.array(label), np.array([q in found for q in question_ids], dtype=bool)
