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
class Pair:
    """Does ``premise`` entail ``hypothesis``, both being answers to ``question``?"""

    question: str
    premise: str
    hypothesis: str


class Backend(Protocol):
    """Built once per actor; ``classify`` must depend on the pairs only, so identical pairs are read once."""

    name: str

    @property
    def reads_question(self) -> bool:
        """Whether the verdict depends on the question; if not, pairs come with an empty one."""
        ...

    def classify(self, pairs: Sequence[Pair]) -> Floats:
        """(len(pairs), 3) probabilities of entail, neutral, contradict; NaN rows where it cannot say."""
        ...


BACKENDS = Registry(
    "entailment backend",
    {
        "alias": "sgpu.entailment.alias:AliasBackend",
        "cosine": "sgpu.entailment.cosine:CosineBackend",
        "deberta": "sgpu.entailment.deberta:DebertaBackend",
        "llm": "sgpu.entailment.llm:LLMBackend",
    },
)


def two_way(entail: Floats | Bools) -> Floats:
    """(P,) probabilities of entailment to (P, 3) verdicts of a backend that knows no third class.

    What does not entail contradicts: of two short answers to one question that mean different things at
    most one is right.
    """
    p = np.asarray(entail, dtype=np.float64)
    return np.stack([p, np.where(np.isnan(p), np.nan, 0.0), 1.0 - p], axis=-1)
