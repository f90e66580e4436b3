"""Entailment without a model of inference: equal words, or vectors that are close enough, mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sgpu.encoders.base import distinct
from sgpu.entailment.base import AnswerPair, Bools, Floats, two_way
from sgpu.errors import DataError
from sgpu.judges.alias import words

if TYPE_CHECKING:
    from sgpu.encoders import Encoder


class AliasBackend:
    """Entailment without a model: two answers entail each other if their `sgpu.judges.alias.words` are equal.

    So "the Hague." and "The Hague" are one answer, "The Hague" and "Den Haag" are two.
    """

    name = "alias"
    reads_question = False

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
        """See `sgpu.entailment.base.Backend`; verdicts are 0 or 1 and symmetric."""
        return two_way(
            np.array([words(pair.premise) == words(pair.hypothesis) for pair in pairs], dtype=bool)
        )


class CosineBackend:
    """Two answers entail each other if the cosine of their vectors is at least ``threshold``.

    No natural-language inference: it knows no direction and no neutral, and entropies that are made with
    it are not the ones of the literature. Raises DataError for a threshold outside [-1, 1].
    """

    name = "cosine"
    built_from = "encoder"
    reads_question = False

    def __init__(self, encoder: Encoder, threshold: float) -> None:
        if not -1 <= threshold <= 1:
            raise DataError(f"the cosine threshold is {threshold}; a cosine lies in [-1, 1].")
        self._encoder, self._threshold = encoder, threshold

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
        """See `sgpu.entailment.base.Backend`; verdicts are 0 or 1 and symmetric."""
        texts = [(pair.premise, pair.hypothesis) for pair in pairs]
        return two_way(cosines(self._encoder, texts) >= self._threshold)


@dataclass(frozen=True)
class ThresholdFit:
    """A threshold, the pairs that it was fitted on and how well it separates them (0.5 is chance)."""

    threshold: float
    n_same: int
    n_different: int
    balanced_accuracy: float


def fit_threshold(
    encoder: Encoder, answers: Sequence[Sequence[str | None]], votes: Sequence[Sequence[int | None]]
) -> ThresholdFit | None:
    """The cosine that best tells answers of one meaning from others, on judged training questions.

    ``answers`` and ``votes`` (1 right, 0 wrong, None not known) are Q x N. Pairs of different texts to one
    question that are both right mean the same; a right and a wrong one do not; two wrong ones tell
    nothing. None where the questions do not have both kinds of pairs.
    """
    pairs, same = _judged_pairs(answers, votes)
    if not same.any() or same.all():
        return None
    threshold, accuracy = best_threshold(cosines(encoder, pairs), same)
    return ThresholdFit(threshold, int(same.sum()), int((~same).sum()), accuracy)


def best_threshold(similarity: Floats, same: Bools) -> tuple[float, float]:
    """(t, balanced accuracy) of the rule ``similarity >= t`` that says best which pairs are ``same``.

    Both arrays are (P,) and hold both classes. t lies half-way to the next lower similarity; of equally
    good ones it is the highest.
    """
    from sklearn.metrics import roc_curve  # here, as every command would wait for it

    wrong, right, thresholds = roc_curve(same, similarity, drop_intermediate=False)
    best = int(np.argmax(right - wrong))
    lower = thresholds[best + 1] if best + 1 < len(thresholds) else thresholds[best]
    upper = min(float(thresholds[best]), 1.0)  # the first threshold of a ROC curve is infinity
    return (upper + float(lower)) / 2, float((right[best] + 1 - wrong[best]) / 2)


def cosines(encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> Floats:
    """(P,) cosines of pairs of texts; every different text is encoded once."""
    texts, places = distinct(text for pair in pairs for text in pair)
    if not texts:
        return np.empty(0)
    vectors, index = encoder.encode(texts), places.reshape(-1, 2)
    return np.einsum("pd,pd->p", vectors[index[:, 0]], vectors[index[:, 1]], dtype=np.float64)


def _judged_pairs(
    answers: Sequence[Sequence[str | None]], votes: Sequence[Sequence[int | None]]
) -> tuple[list[tuple[str, str]], Bools]:
    pairs, same = [], []
    for texts, judged in zip(answers, votes, strict=True):
        known = {text: vote for text, vote in zip(texts, judged, strict=True) if text and vote is not None}
        for (a, vote_a), (b, vote_b) in combinations(known.items(), 2):
            if vote_a or vote_b:
                pairs.append((a, b))
                same.append(vote_a == vote_b)
    return pairs, np.array(same, dtype=bool)
