"""Entailment without a model: equal words, after normalisation, mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgpu.entailment.base import Floats, Pair, two_way
from sgpu.judges.normalise import words


class AliasBackend:
    """Two answers entail each other if their normalised words are equal (`sgpu.judges.normalise.words`).

    So "the Hague." and "The Hague" are one answer, "The Hague" and "Den Haag" are two.
    """

    name = "alias"
    reads_question = False

    def classify(self, pairs: Sequence[Pair]) -> Floats:
        """See `sgpu.entailment.base.Backend`; verdicts are 0 or 1 and symmetric."""
        return two_way(
            np.array([words(pair.premise) == words(pair.hypothesis) for pair in pairs], dtype=bool)
        )
