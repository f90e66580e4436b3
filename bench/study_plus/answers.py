"""What the methods see of a cell: some of its answers; and the four labels that they are evaluated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench.study_plus.cells import IMAGE_CELL, IMAGE_MODEL, TEXT_MODEL, StudyCell, published
from bench.study_plus.questions import accepted_names
from sgpu.agreement import ContentAgreement
from sgpu.encoders import load_encoder
from sgpu.encoders.spectra import EmbeddedSets
from sgpu.judges.labels import majority
from sgpu.methods.base import CellFeatures
from sgpu.methods.clustering import entailment_clusters
from sgpu.spectrum import expand

Floats = NDArray[np.float64]
ENCODER, SAME_MEANING = "all-MiniLM-L6-v2", 0.9
LABELS = ("chosen", "other", "same", "first")


@dataclass(frozen=True)
class CellAnswers:
    """Questions with 20 answers each: votes (Q, 20), NaN where unknown, and cosines (Q, 20, 20).

    Cells of one ``family`` are never trained on for each other.
    """

    name: str
    family: str
    cell: StudyCell
    questions: list[str]
    references: list[list[str]]
    answers: list[list[str]]
    votes: Floats
    logprobs: list[list[list[float]]]
    cosines: Floats

    def scored(self, n: int) -> ScoredAnswers:
        """Return what the methods see: the first ``n`` answers."""
        return ScoredAnswers(self, n)


@dataclass(frozen=True)
class ScoredAnswers:
    """The first ``n`` answers of a cell."""

    of: CellAnswers
    n: int

    @cached_property
    def features(self) -> CellFeatures:
        """The inputs of the methods."""
        n, cosines = self.n, self.of.cosines[:, : self.n, : self.n]
        values = np.linalg.eigvalsh(cosines)[:, ::-1].clip(min=0)
        entail = (cosines >= SAME_MEANING).astype(np.float64)
        return CellFeatures(
            question_ids=[str(i) for i in range(len(self.of.questions))],
            answers=[list(row[:n]) for row in self.of.answers],
            questions=self.of.questions,
            token_logprobs=[row[:n] for row in self.of.logprobs],
            eigenvalues=values * (n / values.sum(axis=1, keepdims=True)),
            similarities=cosines,
            entail=entail,
            contradict=np.zeros_like(entail),
            clusters=entailment_clusters(entail, np.zeros_like(entail)),
        )

    @cached_property
    def found(self) -> list[ContentAgreement | None]:
        """Agreement on content; None where the method declines."""
        return list(self.features.content or [])

    @cached_property
    def chosen(self) -> NDArray[np.int64]:
        """(Q,) places of the most central answers; 0 where the method declines."""
        return np.array([one.chosen or 0 if one else 0 for one in self.found], dtype=np.int64)

    def label(self, name: str) -> Floats:
        """Return a label (Q,) of `LABELS`; NaN where no vote is known."""
        votes, rows = self.of.votes, np.arange(len(self.of.votes))
        match name:
            case "chosen":
                return votes[rows, self.chosen]
            case "first":
                return votes[:, 0]
            case "same":
                return majority_labels(votes[:, : self.n])
            case _:
                return majority_labels(votes[:, votes.shape[1] // 2 :])

    @cached_property
    def mean_cosine(self) -> Floats:
        """(Q, n) mean cosine of each answer to the others."""
        return (self.features.similarities.sum(axis=2) - 1) / (self.n - 1)  # type: ignore[union-attr]


def majority_labels(votes: Floats) -> Floats:
    """Return the label (Q,) of each row of votes (Q, N), see `sgpu.judges.labels.majority`; NaN for none."""
    rows = [[None if np.isnan(vote) else bool(vote) for vote in row] for row in votes]
    return np.array([majority(row).label for row in rows], dtype=np.float64)


def load_cells(out: Path, cells: Sequence[StudyCell]) -> list[CellAnswers]:
    """Load what was sampled, with the two paraphrased cells if their originals are there."""
    loaded = [_load(out / "text", cell, TEXT_MODEL) for cell in cells]
    if (out / "images").is_dir():
        loaded.append(_load(out / "images", IMAGE_CELL, IMAGE_MODEL))
    originals = {cell.name: cell for cell in loaded}
    copies = {"city-names": "city-paraphrased", "language-sentences": "language-paraphrased"}
    return loaded + [paraphrase(originals[name], copy) for name, copy in copies.items() if name in originals]


def _load(run: Path, cell: StudyCell, model: str) -> CellAnswers:
    asked = {row["question_id"]: row for row in published(run, "questions", cell.name).to_pylist()}
    labels = {
        row["question_id"]: row
        for row in published(run, "labels", cell.name, model, judge="alias").to_pylist()
    }
    spectra = {
        row["question_id"]: row
        for row in published(run, "spectra", cell.name, model, encoder=ENCODER).to_pylist()
    }
    rows = [
        row
        for row in published(run, "responses", cell.name, model).to_pylist()
        if row["status"] == "ok" and spectra[row["question_id"]]["status"] == "ok"
    ]
    ids = [row["question_id"] for row in rows]
    n = len(rows[0]["answers"])
    return CellAnswers(
        cell.name,
        cell.name,
        cell,
        [asked[key]["question"] for key in ids],
        [list(asked[key]["references"]) for key in ids],
        [row["answers"] for row in rows],
        np.array([labels[key]["votes"] for key in ids], dtype=np.float64),
        [row["token_logprobs"] for row in rows],
        expand(np.array([spectra[key]["cosines"] for key in ids], dtype=np.float64), n),
    )


def paraphrase(cell: CellAnswers, name: str) -> CellAnswers:
    """Copy a cell with the name in each right answer replaced by a random accepted one; votes stay."""
    answers = [
        [
            reword(text, references, Random(f"{cell.name}/{q}/{i}")) if vote == 1 else text
            for i, (text, vote) in enumerate(zip(texts, votes, strict=True))
        ]
        for q, (texts, votes, references) in enumerate(
            zip(cell.answers, cell.votes, cell.references, strict=True)
        )
    ]
    n = cell.votes.shape[1]
    embedded = EmbeddedSets.of(answers, n, load_encoder(ENCODER, dtype="float32"))
    return replace(cell, name=name, answers=answers, cosines=expand(embedded.cosines(), n))


def reword(text: str, references: Sequence[str], draw: Random) -> str:
    """Replace the reference that a text names by a random accepted name of the same thing."""
    named = [name for name in references if name.casefold() in text.casefold()]
    if not named:
        return text
    name = max(named, key=len)
    start = text.casefold().index(name.casefold())
    return text[:start] + draw.choice(accepted_names([name])) + text[start + len(name) :]
