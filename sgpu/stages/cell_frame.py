"""One cell's questions, answers, labels and spectra side by side, aligned by question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.encoders.texts import Embed, embedded_texts
from sgpu.hidden.reading import answer_states
from sgpu.methods.base import CellFeatures, Need
from sgpu.runtime.run import Run
from sgpu.stages.encode import answers_per_question, encoder_label
from sgpu.stages.entail import ASKS, published_entailment
from sgpu.stages.hidden import NEEDS as HIDDEN_NEEDS
from sgpu.stages.hidden import published_hidden_states, why_no_hidden_states
from sgpu.stages.judge import judge_label
from sgpu.storage.store import Partition, Published
from sgpu.study.benchmark import Cell


@dataclass(frozen=True)
class CellInputs:
    """The published tables that a cell's fit, predictions and metrics are made of."""

    questions: Published
    responses: Published
    labels: Published
    spectra: Published
    judge: str
    encoder: str
    n: int
    entailment: Published | None = None  # where a method of the study asks for it
    hidden: Published | None = None  # likewise, and where the cell can have them
    why_no_hidden: str | None = None
    embed: Embed = "full"

    @property
    def tables(self) -> list[Published]:
        """All of them that the study has."""
        always = (self.questions, self.responses, self.labels, self.spectra)
        return [table for table in (*always, self.entailment, self.hidden) if table is not None]

    @property
    def versions(self) -> list[list[str]]:
        """What a fingerprint of anything computed from these tables holds."""
        return [[table.table, table.partition.path, table.fingerprint] for table in self.tables]

    def why_lacking(self, needs: Sequence[Need]) -> str:
        """Why the cell does not have these inputs, for a person."""
        if self.why_no_hidden and any(need.endswith("_hidden") for need in needs):
            return self.why_no_hidden
        return f"the responses have no {' and no '.join(needs)}"


def cell_inputs(run: Run, cell: Cell) -> CellInputs:
    """The cell's tables as published now; StageError if one is not there yet."""
    pair = {"model": cell.model, "dataset": cell.dataset}
    return CellInputs(
        questions=run.store.require("questions", Partition.of(dataset=cell.dataset)),
        responses=run.store.require("responses", Partition.of(**pair)),
        labels=published_labels(run, cell),
        spectra=published_spectra(run, cell),
        judge=judge_label(run, cell),
        encoder=encoder_label(run),
        n=answers_per_question(run, cell),
        entailment=published_entailment(run, cell),
        hidden=published_hidden_states(run, cell),
        why_no_hidden=why_no_hidden_states(run, cell),
        embed=run.study.dataset(cell.dataset).embed,
    )


def cell_frame(inputs: CellInputs) -> pl.DataFrame:
    """One row a question, in split and key order. What is missing is null, never left out."""
    questions = pl.from_arrow(
        inputs.questions.read(["question_id", "question", "references", "split", "position"])
    )
    responses = pl.from_arrow(inputs.responses.read(["question_id", "answers", "token_logprobs"]))
    labels = pl.from_arrow(inputs.labels.read(["question_id", "label", "votes"]))
    spectra = pl.from_arrow(inputs.spectra.read(["question_id", "eigenvalues", "status"]))
    assert isinstance(questions, pl.DataFrame) and isinstance(spectra, pl.DataFrame)
    spectra = spectra.with_columns(
        pl.when(pl.col("status") == "ok").then(pl.col("eigenvalues")).alias("eigenvalues")
    ).drop("status")
    frame = questions
    for part in (responses, labels, spectra):
        frame = frame.join(part, on="question_id", how="left", validate="1:1")  # type: ignore[arg-type]
    return frame.sort("split", "position")


def eigenvalues(frame: pl.DataFrame, n: int) -> NDArray[np.float64]:
    """(Q, N) eigenvalues; a row without a spectrum is NaN."""
    empty = [np.nan] * n
    rows = [empty if row is None else row for row in frame["eigenvalues"].to_list()]
    return np.asarray(rows, dtype=np.float64).reshape(len(rows), n)


def labels(frame: pl.DataFrame) -> NDArray[np.float64]:
    """(Q,) labels; NaN where the judge could not say."""
    return frame["label"].cast(pl.Float64).fill_null(np.nan).to_numpy()


def features(frame: pl.DataFrame, inputs: CellInputs, needs: Collection[Need] = ()) -> CellFeatures:
    """What the methods see: no labels, no references. What is large is read only if needed."""
    ids, n = frame["question_id"].to_list(), inputs.n
    logprobs = [row or [] for row in frame["token_logprobs"].to_list()]
    # A server that gives no log-probabilities leaves an empty list for each answer.
    given = any(answer for row in logprobs for answer in row)
    hidden = {
        need: answer_states(inputs.hidden, ids, layer)
        for need, layer in HIDDEN_NEEDS.items()
        if need in needs and inputs.hidden is not None
    }
    return CellFeatures(
        question_ids=ids,
        answers=[embedded_texts(answers or [], inputs.embed) for answers in frame["answers"].to_list()],
        token_logprobs=logprobs if given else None,
        eigenvalues=eigenvalues(frame, n),
        **(_compared(ids, inputs.entailment, n) if ASKS & set(needs) else {}),
        last_hidden=hidden.get("last_hidden"),
        middle_hidden=hidden.get("middle_hidden"),
    )


def _compared(ids: list[str], entailment: Published | None, n: int) -> dict[str, NDArray[Any]]:
    """Entailments and clusters of these questions, in order; NaN and -1 where there are none."""
    if entailment is None:
        return {}
    rows = pl.DataFrame(pl.from_arrow(entailment.read(["question_id", "entail", "contradict", "clusters"])))
    wanted = pl.DataFrame({"question_id": ids}, schema={"question_id": pl.String})
    rows = wanted.join(rows, on="question_id", how="left", validate="1:1", maintain_order="left")
    clusters = _rectangle(rows["clusters"], n)
    return {
        "entail": _rectangle(rows["entail"], n * n).reshape(-1, n, n),
        "contradict": _rectangle(rows["contradict"], n * n).reshape(-1, n, n),
        "clusters": np.where(np.isnan(clusters), -1, clusters).astype(np.int64),
    }


def _rectangle(lists: pl.Series, width: int) -> NDArray[np.float64]:
    """(Q, width) of a column of lists of one length; NaN for null, whole lists and single values."""
    values = np.full((len(lists), width), np.nan)
    flat = lists.drop_nulls().explode().cast(pl.Float64).fill_null(np.nan).to_numpy()
    values[lists.is_not_null().to_numpy()] = flat.reshape(-1, width)
    return values


def published_labels(run: Run, cell: Cell) -> Published:
    """The cell's labels by the study's judge."""
    judge = judge_label(run, cell)
    return run.store.require("labels", Partition.of(model=cell.model, dataset=cell.dataset, judge=judge))


def published_spectra(run: Run, cell: Cell) -> Published:
    """The cell's spectra by the study's encoder."""
    encoder = encoder_label(run)
    return run.store.require("spectra", Partition.of(model=cell.model, dataset=cell.dataset, encoder=encoder))
