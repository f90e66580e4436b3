"""The entailments of a batch of response sets: the pairs of texts that a backend reads, and Arrow rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpu.entailment.base import CONTRADICT, ENTAIL, NEUTRAL, AnswerPair, Backend, Floats
from sgpu.errors import StageError
from sgpu.methods.clustering import entailment_clusters
from sgpu.storage.tables import ENTAILMENT

# Rows behind those of the backend: a text entails itself, and of a missing answer nothing is known.
_SAME, _MISSING = -2, -1
_KNOWN_VERDICTS = np.array([[1.0, 0.0, 0.0], [np.nan] * 3])


@dataclass(frozen=True)
class AnswerSet:
    """The N answers to one question; None where an answer is missing."""

    question: str
    answers: tuple[str | None, ...]

    @property
    def texts(self) -> list[str]:
        """The different answers, in order of first sight."""
        return list(dict.fromkeys(text for text in self.answers if text is not None))


def relations(sets: Sequence[AnswerSet], backend: Backend) -> list[Floats]:
    """For each set an (N, N, 3) array, [i, j] the verdict (entail, neutral, contradict) of answer i on j.

    Every ordered pair of different texts goes to the backend once, all sets in one call. Identical texts
    entail each other without being read. NaN in the rows and columns of missing answers, and where the
    backend could not say. Raises StageError if it returns another number of verdicts than it got pairs.
    """
    places: dict[AnswerPair, int] = {}
    tables = [_places(answers, backend.reads_question, places) for answers in sets]
    verdicts = np.empty((0, 3))
    if places:
        verdicts = np.asarray(backend.classify(list(places)), dtype=np.float64)
        if verdicts.shape != (len(places), 3):
            raise StageError(
                f"entailment backend {backend.name!r} returned verdicts of shape {verdicts.shape} for "
                f"{len(places)} pairs; ({len(places)}, 3) is needed."
            )
    all_verdicts = np.concatenate([verdicts, _KNOWN_VERDICTS])
    return [all_verdicts[table] for table in tables]


def _places(answers: AnswerSet, reads_question: bool, places: dict[AnswerPair, int]) -> NDArray[np.intp]:
    """(N, N) places of the verdicts; pairs that were not seen before are added to ``places``."""
    question = answers.question if reads_question else ""
    texts = answers.texts
    table = np.full((len(texts) + 1, len(texts) + 1), _MISSING, dtype=np.intp)
    for i, premise in enumerate(texts):
        for j, hypothesis in enumerate(texts):
            pair = AnswerPair(question, premise, hypothesis)
            table[i, j] = _SAME if i == j else places.setdefault(pair, len(places))
    place_of = {text: i for i, text in enumerate(texts)}
    index = [len(texts) if text is None else place_of[text] for text in answers.answers]
    return table[np.ix_(index, index)]


def entailment_rows(
    responses: pa.Table,
    questions: Mapping[str, str],
    backend: Backend,
    n: int,
    threshold: float | None = None,
    dtype: str | None = None,
) -> pa.Table:
    """One row of `tables.ENTAILMENT` for every row of ``responses``, in order, from the first n answers.

    A response set that is not "ok", or of which no answer is there, is "missing"; one with fewer than n
    answers "failed". If the backend could not say of some pair, the row is "missing" and has no clusters,
    but keeps what is known. ``threshold`` and ``dtype`` are those of the backend, for the record.
    """
    rows = responses.select(["question_id", "status", "error", "answers"]).to_pylist()
    problems = [_problem(row, questions, n) for row in rows]
    usable = [
        AnswerSet(questions[row["question_id"]], tuple(row["answers"][:n]))
        for row, problem in zip(rows, problems, strict=True)
        if problem is None
    ]
    related = iter(zip(usable, relations(usable, backend), strict=True))
    records = [
        {"status": problem[0], "error": problem[1]} if problem else _row(*next(related))
        for problem in problems
    ]
    for row, made_row in zip(rows, records, strict=True):
        made_row |= {"question_id": row["question_id"], "threshold": threshold, "dtype": dtype}
    return pa.Table.from_pylist(records, schema=ENTAILMENT.schema)


def _problem(row: Mapping[str, Any], questions: Mapping[str, str], n: int) -> tuple[str, str] | None:
    """Why a response set has no entailments, as (status, error); None where it can have them."""
    answers = row["answers"] or []
    if row["status"] != "ok":
        return "missing", f"the response set is {row['status']!r}: {row['error'] or 'no reason given'}"
    if row["question_id"] not in questions:
        return "missing", "the questions table has no such question_id"
    if len(answers) < n:
        return "failed", f"{len(answers)} answers, {n} needed; sample more or lower n"
    if all(answer is None for answer in answers[:n]):
        return "missing", f"all {n} answers are missing"
    return None


def _row(answers: AnswerSet, relation: Floats) -> dict[str, Any]:
    present = [answer for answer in answers.answers if answer is not None]
    unknown = int(np.isnan(relation).any(axis=-1).sum()) - (len(answers.answers) ** 2 - len(present) ** 2)
    clusters = entailment_clusters(relation[..., ENTAIL], relation[..., CONTRADICT])
    return {
        "status": "missing" if unknown else "ok",
        "error": f"{unknown} of {len(present) ** 2} pairs got no readable verdict" if unknown else None,
        "n": len(answers.answers),
        "n_distinct": len(answers.texts),
        "n_blank": sum(not answer.strip() for answer in present),
        "entail": _flat(relation[..., ENTAIL]),
        "neutral": _flat(relation[..., NEUTRAL]),
        "contradict": _flat(relation[..., CONTRADICT]),
        "clusters": None if unknown else [None if cluster < 0 else int(cluster) for cluster in clusters],
    }


def _flat(matrix: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in matrix.ravel().tolist()]
