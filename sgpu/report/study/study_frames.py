"""The frames behind the small tables of the report, over all cells of the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from sgpu.evaluation.agreement import consistent_confusion
from sgpu.methods.base import METHODS
from sgpu.methods.self_consistency import self_consistency
from sgpu.report.study.data import (
    CONFUSION_SCHEMA,
    EMBEDDING_SCHEMA,
    PAIR_SCHEMA,
    POSTHOC_SCHEMA,
    SENSITIVITY_SCHEMA,
)
from sgpu.stages.cell_frame import CellInputs, cell_inputs, floats, rows_of
from sgpu.stages.embedding_study import EXTERNAL, PAIR, PAIRS
from sgpu.stages.entail import ASKS
from sgpu.stages.fit import BUNDLED, METHOD
from sgpu.stages.hidden import NEEDS, PROBE_NEED
from sgpu.stages.run import Run
from sgpu.stages.sensitivity import POOL, asks_for_sensitivity, swept_pool
from sgpu.storage.store import Published
from sgpu.storage.tables import SENSITIVITY
from sgpu.study.benchmark import Cell


def sensitivity_frame(run: Run) -> pl.DataFrame:
    """What the sensitivity stage has published."""
    if not asks_for_sensitivity(run):
        return pl.DataFrame(schema=SENSITIVITY_SCHEMA)
    cells = [*run.study.cells(), *([POOL] if swept_pool(run) else [])]
    return pl.concat([published_frame(run, SENSITIVITY.name, cell) for cell in cells])


def confusion_frame(run: Run) -> pl.DataFrame:
    """The classifier on test questions whose answers mostly mean the same (by entailment, or by wording)."""
    rows = []
    for cell in run.study.cells():
        ours = published_frame(run, "predictions", cell).filter(split="test", method=METHOD)
        if ours.is_empty():
            continue
        share = agreement_shares(cell_inputs(run, cell), ours["question_id"].to_list())
        confusion = consistent_confusion(share, floats(ours["probability"]), floats(ours["label"]))
        rows.append(
            (cell.model, cell.dataset, *(getattr(confusion, name) for name in CONFUSION_SCHEMA.names()[2:]))
        )
    return pl.DataFrame(rows, CONFUSION_SCHEMA, orient="row")


def posthoc_frame(run: Run) -> pl.DataFrame:
    """Seconds for each input that a method takes after sampling: what its stages took, and its own work."""
    rows = [row for cell in run.study.cells() for row in _posthoc(run, cell)]
    frame = pl.DataFrame(rows, schema=POSTHOC_SCHEMA)
    return frame.group_by("method", "dataset", maintain_order=True).agg(pl.col("seconds_per_input").mean())


def embedding_frame(run: Run) -> pl.DataFrame:
    """Means over the constructed sets: ideal, by the encoder, and by the model's layer that comes nearest."""
    if not (asked := _cells_with_embeddings(run)):
        return pl.DataFrame(schema=EMBEDDING_SCHEMA)
    named = [_named_embeddings(run, cell) for cell in asked]
    columns = ["lambda_1", "lambda_2", "epsilon"]
    means = pl.concat(named).group_by("embedding", maintain_order=True).agg(pl.col(columns).mean())
    ideal = {"embedding": "Ideal Embedding", "lambda_1": 10.0, "lambda_2": 5.0, "epsilon": 0.0}
    return pl.concat([pl.DataFrame([ideal], schema=EMBEDDING_SCHEMA), means.select(EMBEDDING_SCHEMA.names())])


def sentence_pair_frame(run: Run) -> pl.DataFrame:
    """Return for each pair of sentences of one meaning its cosine, and whether each entails the other."""
    frames = [pl.DataFrame(schema=PAIR_SCHEMA)]
    for cell in _cells_with_embeddings(run):
        if (published := run.store.published("embeddings", cell.partition())) is None:
            continue
        rows = rows_of(published, ["question_id", "embedding", "epsilon", "entailed"])
        rows = rows.filter(pl.col("question_id").str.starts_with(PAIR)).explode("embedding", "epsilon")
        contexts = {f"{PAIR}{i}": question for i, (question, *_) in enumerate(PAIRS)}
        frames.append(
            rows.filter(embedding=EXTERNAL).select(
                pl.col("question_id").replace_strict(contexts, return_dtype=pl.String).alias("context"),
                pl.col("entailed").cast(pl.Float64).alias("bidirectional_entailment"),
                (1 - pl.col("epsilon")).alias("cosine"),  # the only error is that of the one similarity
            )
        )
    # The encoder and the classifier are those of the study, so every cell says the same.
    return pl.concat(frames).unique("context", keep="first", maintain_order=True)


def _cells_with_embeddings(run: Run) -> list[Cell]:
    return [cell for cell in run.study.cells() if run.study.sensitivity_of(cell).embedding_sets]


def _named_embeddings(run: Run, cell: Cell) -> pl.DataFrame:
    """One row a constructed set and embedding: the encoder's, and those of the model's best layer."""
    schema = pl.Schema({**EMBEDDING_SCHEMA, "mean_square": pl.Float64()})
    published = run.store.published("embeddings", cell.partition())
    if published is None:
        return pl.DataFrame(schema=schema)
    sets = rows_of(published, ["question_id", *schema]).filter(~pl.col("question_id").str.starts_with(PAIR))
    frame = sets.select(list(schema)).explode(list(schema)).drop_nulls()
    inside = frame.filter(pl.col("embedding") != EXTERNAL)
    outside = frame.filter(pl.col("embedding") == EXTERNAL)
    parts = [outside.with_columns(pl.lit("External Embedding").alias("embedding"))]
    if not inside.is_empty():
        errors = inside.group_by("embedding", maintain_order=True).agg(pl.col("mean_square").mean())
        best = str(errors.sort("mean_square")["embedding"][0])
        several = len({other.model for other in run.study.cells()}) > 1
        name = f"Internal Embedding ({f'{cell.model}, ' if several else ''}{best})"
        parts.append(inside.filter(pl.col("embedding") == best).with_columns(pl.lit(name).alias("embedding")))
    return pl.concat(parts).select(list(schema))


def cell_table(run: Run, table: str, cell: Cell) -> Published:
    """A table of a cell as published."""
    return run.store.require(table, cell.partition())


def published_frame(run: Run, table: str, cell: Cell) -> pl.DataFrame:
    """Its rows, with the cell's model and data set."""
    frame = rows_of(cell_table(run, table, cell))
    return frame.with_columns(pl.lit(cell.model).alias("model"), pl.lit(cell.dataset).alias("dataset"))


def study_frame(run: Run, table: str) -> pl.DataFrame:
    """The rows of all cells of the study."""
    return pl.concat([published_frame(run, table, cell) for cell in run.study.cells()])


def agreement_shares(inputs: CellInputs, question_ids: list[str]) -> list[float]:
    """The share of the most frequent meaning (of the most frequent wording, without entailments)."""
    if inputs.entailment is not None:
        clusters = rows_of(inputs.entailment, ["question_id", "clusters"]).iter_rows()
        share = {question: _most_frequent(row or []) for question, row in clusters}
    else:
        answers = rows_of(inputs.responses, ["question_id", "answers"]).iter_rows()
        share = {question: self_consistency((row or [])[: inputs.n]) for question, row in answers}
    return [share.get(question, np.nan) for question in question_ids]


def _most_frequent(clusters: list[int | None]) -> float:
    counts = Counter(cluster for cluster in clusters if cluster is not None)
    return max(counts.values()) / counts.total() if counts else np.nan


def _posthoc(run: Run, cell: Cell) -> Iterator[dict[str, object]]:
    inputs = cell_inputs(run, cell)
    manifest = cell_table(run, "predictions", cell).manifest
    for method, seconds in manifest.get("method_seconds", {}).items():
        worked = [_seconds_per_row(table) for table in _stages_of(method, inputs)]
        measured = [seconds_per_row for seconds_per_row in worked if seconds_per_row is not None]
        if len(measured) == len(worked) and manifest["questions"]:
            total = sum(measured) + seconds / manifest["questions"]
            yield {"method": method, "dataset": cell.dataset, "seconds_per_input": total}


def _stages_of(method: str, inputs: CellInputs) -> list[Published]:
    """The stages after sampling that a method cannot do without."""
    needs = METHODS.get(method).needs
    stages = [inputs.spectra] if "eigenvalues" in needs or method in BUNDLED else []
    # An entailment serves training of a probe only, not its use.
    if needs & ASKS and PROBE_NEED not in needs and inputs.entailment is not None:
        stages.append(inputs.entailment)
    if needs & {*NEEDS, PROBE_NEED} and inputs.hidden is not None:
        stages.append(inputs.hidden)
    return stages


def _seconds_per_row(table: Published) -> float | None:
    """What a stage's actors worked for a row; None where it was not measured."""
    seconds = table.manifest.get("working_seconds")
    return float(seconds) / table.rows if seconds and table.rows else None
