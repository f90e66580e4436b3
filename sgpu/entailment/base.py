"""What an entailment backend must do: say of each pair of texts whether the first entails the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgpu.registry import Registry

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ENTAIL, NEUTRAL, CONTRADICT = range(3)  # the columns of every verdict


@dataclass(frozen=True)
class AnswerPair:
    """Does ``premise`` entail ``hypothesis``, both being answers to ``question``?"""

    question: str
    premise: str
    hypothesis: str


class Backend(Protocol):
    """Built once per actor; ``classify`` must depend on the pairs only, so identical pairs are read once.

    What it is built from in a study it says as ``built_from``: "encoder" (a sentence encoder, a threshold),
    "checkpoint" (the files of a classifier) or "engine" (of a model card). Without it, from nothing.
    """

    name: str

    @property
    def reads_question(self) -> bool:
        """Whether the verdict depends on the question; if not, pairs come with an empty one."""
        ...

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
        """(len(pairs), 3) probabilities of entail, neutral, contradict; NaN rows where it cannot say."""
        ...


BACKENDS = Registry(
    "entailment backend",
    {
        "alias": "sgpu.entailment.two_way:AliasBackend",
        "cosine": "sgpu.entailment.two_way:CosineBackend",
        "deberta": "sgpu.entailment.deberta:DebertaBackend",
        "llm": "sgpu.entailment.two_way:LLMBackend",
    },
    group="sgpu.entailment",
)


def two_way(entail: Floats | Bools) -> Floats:
    """(P,) probabilities of entailment to (P, 3) verdicts of a backend that knows no third class.

    What does not entail contradicts: of two short answers to one question that mean different things at
    most one is right.
    """
    p = np.asarray(entail, dtype=np.float64)
    return np.stack([p, np.where(np.isnan(p), np.nan, 0.0), 1.0 - p], axis=-1)


_NOT_THE_PAPERS = (
    "Methods that compare answers (semantic entropies, kernel language entropy) are then not the paper's "
    "baselines, which ask a DeBERTa model of natural-language inference."
)
_HOW = {
    "deberta": "Whether one answer entails another is said by {label}.",
    "cosine": "Answers count as one meaning by the cosine of their sentence vectors ({label}). ",
    "alias": "Answers count as one meaning if their words are equal ({label}). ",
    "llm": "Whether one answer entails another was asked of a language model ({label}). ",
}
_REGISTERED = "Whether one answer entails another is said by the backend {backend!r} ({label}). "


def backend_note(backend: str, label: str) -> str:
    """What a report says of a backend: how entailment was decided, and whether that is the paper's way."""
    note = _HOW.get(backend, _REGISTERED).format(backend=backend, label=label)
    return note if backend == "deberta" else note + _NOT_THE_PAPERS
