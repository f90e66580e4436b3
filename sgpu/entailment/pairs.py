"""From response sets to the pairs of texts that a backend must read, and back to N x N arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sgpu.entailment.base import Backend, Floats, Pair
from sgpu.errors import StageError

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
    places: dict[Pair, int] = {}
    tables = [_places(answers, backend.reads_question, places) for answers in sets]
    verdicts = np.empty((0, 3))
    if places:
        verdicts = np.asarray(backend.classify(list(places)), dtype=np.float64)
        if verdicts.shape != (len(places), 3):
            raise StageError(
                f"entailment backend {backend.name!r} returned verdicts of shape {verdicts.shape} for "
                f"{len(places)} pairs; ({len(places)}, 3) is needed."
            )
    known = np.concatenate([verdicts, _KNOWN_VERDICTS])
    return [known[table] for table in tables]


def _places(answers: AnswerSet, reads_question: bool, places: dict[Pair, int]) -> NDArray[np.intp]:
    """(N, N) places of the verdicts; pairs that were not seen before are added to ``places``."""
    question = answers.question if reads_question else ""
    texts = answers.texts
    table = np.full((len(texts) + 1, len(texts) + 1), _MISSING, dtype=np.intp)
    for i, premise in enumerate(texts):
        for j, hypothesis in enumerate(texts):
            pair = Pair(question, premise, hypothesis)
            table[i, j] = _SAME if i == j else places.setdefault(pair, len(places))
    place_of = {text: i for i, text in enumerate(texts)}
    index = [len(texts) if text is None else place_of[text] for text in answers.answers]
    return table[np.ix_(index, index)]
