"""One cell's questions, answers, labels and spectra side by side, aligned by question."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sgpu.encoders.spectra import Embed, embedded_texts
from sgpu.evaluation.inputs import Floats
from sgpu.gp.classifier import GPClassifier
from sgpu.hidden.rows import answer_states
from sgpu.methods.base import CellFeatures, Need
from sgpu.no_answer import no_answer
from sgpu.spectrum import expand
from sgpu.stages.encode import answers_per_question, encoder_label
from sgpu.stages.entail import ASKS, published_entailment
from sgpu.stages.hidden import NEEDS as HIDDEN_NEEDS
from sgpu.stages.hidden import published_hidden_states, why_no_hidden_states
from sgpu.stages.judge import judge_label
from sgpu.stages.run import Run
from sgpu.storage.store import Published
from sgpu.study.benchmark import Cell

COSINES: Need = "similarities"


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


def cell_tables(run: Run, cell: Cell) -> CellInputs:
    """The cell's questions, answers, labels and spectra, whether or not this machine knows its model."""
    return CellInputs(
        questions=run.questions(cell.dataset),
        responses=run.responses(cell),
        labels=published_labels(run, cell),
        spectra=published_spectra(run, cell),
        judge=judge_label(run, cell),
        encoder=encoder_label(run),
        n=answers_per_question(run, cell),
    )


def cell_inputs(run: Run, cell: Cell) -> CellInputs:
    """The cell's tables as published now; StageError if one is not there yet."""
    return replace(
        cell_tables(run, cell),
        entailment=published_entailment(run, cell),
        hidden=published_hidden_states(run, cell),
        why_no_hidden=why_no_hidden_states(run, cell),
        embed=run.study.dataset(cell.dataset).embed,
    )


def rows_of(published: Published, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a table, with these columns or all."""
    return pl.DataFrame(pl.from_arrow(published.read(columns)))


def aligned(question_ids: Sequence[str] | pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of these questions in their order; null where there is none."""
    ids = pl.DataFrame({"question_id": question_ids}, schema={"question_id": pl.String})
    return ids.join(rows, on="question_id", how="left", validate="1:1", maintain_order="left")


def floats(column: pl.Series) -> Floats:
    """The values, NaN for null."""
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def cell_frame(inputs: CellInputs) -> pl.DataFrame:
    """Return one row per question, in split and key order. What is missing is null, never left out.

    ``no_answer`` is the reason of a question whose response set holds no answer, see `sgpu.no_answer`.
    """
    frame = rows_of(inputs.questions, ["question_id", "question", "references", "split", "position", "meta"])
    spectra = rows_of(inputs.spectra, ["question_id", "eigenvalues", "status"]).with_columns(
        pl.when(pl.col("status") == "ok").then(pl.col("eigenvalues")).alias("eigenvalues")
    )
    for part in (
        rows_of(inputs.responses, ["question_id", "answers", "token_logprobs"]),
        rows_of(inputs.labels, ["question_id", "label", "votes"]),
        spectra.drop("status"),
    ):
        frame = frame.join(part, on="question_id", how="left", validate="1:1")
    reasons = [None if answers is None else no_answer(answers) for answers in frame["answers"].to_list()]
    return frame.with_columns(pl.Series("no_answer", reasons, dtype=pl.String)).sort("split", "position")


def eigenvalues(frame: pl.DataFrame, n: int) -> Floats:
    """(Q, N) eigenvalues; a row without a spectrum is NaN."""
    return _rectangle(frame["eigenvalues"], n)


def subset_spectra(
    spectra: Published, question_ids: Sequence[str], sizes: Sequence[int]
) -> dict[int, Floats]:
    """For each size n the spectra (Q, n) of n of the answers, as the encode stage drew them; NaN for none."""
    columns = ["prefixes", "prefix_eigenvalues"]
    drawn = rows_of(spectra, ["question_id", *columns]).explode(columns) if sizes else pl.DataFrame()
    of_size = {n: aligned(question_ids, drawn.filter(pl.col("prefixes") == n)) for n in sizes}
    return {n: _rectangle(rows["prefix_eigenvalues"], n) for n, rows in of_size.items()}


def label_array(frame: pl.DataFrame) -> Floats:
    """Return (Q,) labels; NaN where the judge could not say."""
    return floats(frame["label"])


def labels_of_answers(frame: pl.DataFrame) -> Floats:
    """Return `label_array` of a cell's frame, NaN also where the response set holds no answer."""
    return np.where(frame["no_answer"].is_null(), label_array(frame), np.nan)


@dataclass(frozen=True)
class LabelledSpectra:
    """All questions of a cell with one kind of spectrum; NaN where a label or a spectrum is missing."""

    spectra: Floats  # (Q, N)
    label: Floats  # (Q,)
    split: NDArray[np.str_]  # (Q,)

    @classmethod
    def of(cls, frame: pl.DataFrame, n: int) -> LabelledSpectra:
        """Those of a cell's frame, of ``n`` answers."""
        return cls(eigenvalues(frame, n), labels_of_answers(frame), frame["split"].to_numpy().astype(str))

    @property
    def has_spectrum(self) -> NDArray[np.bool_]:
        """(Q,) whether a question has a spectrum."""
        return np.asarray(~np.isnan(self.spectra).any(axis=1))

    @property
    def trains(self) -> NDArray[np.bool_]:
        """(Q,) whether it is a training question that has a spectrum and a label."""
        return (self.split == "train") & ~np.isnan(self.label) & self.has_spectrum

    def predicted(
        self,
        classifier: GPClassifier,
        represented: Callable[[Floats], Floats] = np.asarray,
    ) -> Floats:
        """(Q,) probabilities by a classifier of spectra as they are or ``represented``; NaN without one."""
        probability, rows = np.full(len(self.label), np.nan), self.has_spectrum
        probability[rows] = classifier.predict(represented(self.spectra[rows])).probability
        return probability


def features(frame: pl.DataFrame, inputs: CellInputs, needs: Collection[Need] = ()) -> CellFeatures:
    """What the methods see: no labels, no references. What is large is read only if needed."""
    ids, n = frame["question_id"].to_list(), inputs.n
    logprobs = [row or [] for row in frame["token_logprobs"].to_list()]
    # A server that gives no log-probabilities leaves an empty list for each answer.
    any_logprobs = any(answer for row in logprobs for answer in row)
    cosines = aligned(ids, rows_of(inputs.spectra, ["question_id", "cosines"])) if COSINES in needs else None
    hidden = {
        need: answer_states(inputs.hidden, ids, layer)
        for need, layer in HIDDEN_NEEDS.items()
        if need in needs and inputs.hidden is not None
    }
    return CellFeatures(
        question_ids=ids,
        answers=[embedded_texts(answers or [], inputs.embed) for answers in frame["answers"].to_list()],
        token_logprobs=logprobs if any_logprobs else None,
        eigenvalues=eigenvalues(frame, n),
        questions=frame["question"].to_list() if "content" in needs else None,
        choices=_choices(frame) if "content" in needs else None,
        similarities=None if cosines is None else expand(_rectangle(cosines["cosines"], n * (n - 1) // 2), n),
        **(_compared(ids, inputs.entailment, n) if ASKS & set(needs) else {}),
        last_hidden=hidden.get("last_hidden"),
        middle_hidden=hidden.get("middle_hidden"),
    )


def _choices(frame: pl.DataFrame) -> list[list[str]]:
    """Return the options that the data set gives for each question."""
    return [json.loads(meta or "{}").get("choices", []) for meta in frame["meta"]]


def _compared(ids: list[str], entailment: Published | None, n: int) -> dict[str, NDArray[Any]]:
    """Entailments and clusters of these questions, in order; NaN and -1 where there are none."""
    if entailment is None:
        return {}
    rows = aligned(ids, rows_of(entailment, ["question_id", "entail", "contradict", "clusters"]))
    clusters = _rectangle(rows["clusters"], n)
    return {
        "entail": _rectangle(rows["entail"], n * n).reshape(-1, n, n),
        "contradict": _rectangle(rows["contradict"], n * n).reshape(-1, n, n),
        "clusters": np.where(np.isnan(clusters), -1, clusters).astype(np.int64),
    }


def _rectangle(lists: pl.Series, width: int) -> Floats:
    """(Q, width) of a column of lists of one length; NaN for null, whole lists and single values."""
    values = np.full((len(lists), width), np.nan)
    values[lists.is_not_null().to_numpy()] = floats(lists.drop_nulls().explode()).reshape(-1, width)
    return values


def published_labels(run: Run, cell: Cell) -> Published:
    """The cell's labels by the study's judge."""
    return run.store.require("labels", cell.partition(judge=judge_label(run, cell)))


def published_spectra(run: Run, cell: Cell) -> Published:
    """The cell's spectra by the study's encoder."""
    return run.store.require("spectra", cell.partition(encoder=encoder_label(run)))
