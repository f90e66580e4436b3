"""Constructed response sets with the geometry of real ones, for benchmarks and tests without an encoder.

Each question draws a partition of its N answers: meanings from a truncated stick-breaking process, and
surface forms inside a meaning, so that equal strings have cosine exactly 1. Embeddings are sums of topic,
family, meaning and form directions, scaled so that cosines match those measured on real sentences with
a MiniLM encoder (same meaning 0.79, same family 0.37, otherwise 0.26).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Squared lengths of the parts of an embedding; they sum to 1, and partial sums are the cosines above.
TOPIC, FAMILY, MEANING, FORM = 0.26, 0.11, 0.42, 0.21
MEANINGS, FORMS, FAMILIES = 12, 8, 4
DIMENSIONS = 96


class Constructed(NamedTuple):
    """spectra (Q, N) float64 descending, label (Q,) int64."""

    spectra: NDArray[np.float64]
    label: NDArray[np.int64]


class ConstructedSets(NamedTuple):
    """gram (Q, N, N) float64 of the embeddings, label (Q,) int64."""

    gram: NDArray[np.float64]
    label: NDArray[np.int64]

    def spectra(self, answers: int | NDArray[np.intp]) -> NDArray[np.float64]:
        """Eigenvalues (Q, n) of the first n answers, or of the answers at these places."""
        places = np.arange(answers) if isinstance(answers, int) else answers
        part = self.gram[:, places[:, None], places]
        return np.linalg.eigvalsh(part)[:, ::-1].clip(min=0.0)


def constructed_spectra(questions: int, **geometry: Any) -> Constructed:
    """Spectra and labels of `questions` constructed response sets; see `constructed_sets`."""
    gram, label = constructed_sets(questions, **geometry)
    return Constructed(np.linalg.eigvalsh(gram)[:, ::-1].copy(), label)


def constructed_sets(
    questions: int,
    *,
    answers: int = 20,
    seed: int = 0,
    diversity: float = 0.7,
    wording: float = 0.5,
    ease: float = 0.0,
    slope: float = 1.0,
) -> ConstructedSets:
    """Gram matrices and labels of `questions` constructed response sets.

    `diversity` > 0 is the median odds of a further meaning, `wording` in (0, 1) the chance of a further
    surface form of one meaning: small values of both give a data set of short class names, where many
    sets are one string twenty times. `ease` shifts the logit of a right answer,
    `slope` is how much it depends on agreement.
    """
    rng = np.random.default_rng(seed)
    spread = diversity * np.exp(rng.normal(0.0, 1.3, (questions, 1)))
    meaning = _stick_breaking(rng, 1.0 / (1.0 + spread), (questions, answers), MEANINGS)
    form = _stick_breaking(rng, np.full((questions, 1), 1.0 - wording), (questions, answers), FORMS)
    gram = _gram(rng, meaning, form)
    return ConstructedSets(gram, _labels(rng, meaning, form, ease, slope))


# An easy data set of short answers: about 0.3 of the sets are one string, which makes rows coincide.
CLASS_NAMES = {"diversity": 0.09, "wording": 1e-3, "ease": -3.5, "slope": 3.0}


def class_names(questions: int, *, seed: int = 0) -> Constructed:
    """Spectra and labels of such a data set."""
    return constructed_spectra(questions, seed=seed, **CLASS_NAMES)


def _stick_breaking(
    rng: np.random.Generator, stop: NDArray[np.float64], shape: tuple[int, int], most: int
) -> NDArray[np.int64]:
    # Geometric choice of a stick, truncated: the chance of stick k is stop * (1 - stop)**k.
    draws = np.floor(np.log(rng.random(shape)) / np.log1p(-np.clip(stop, 1e-6, 1 - 1e-6)))
    return np.minimum(draws, most - 1).astype(np.int64)


def _gram(
    rng: np.random.Generator, meaning: NDArray[np.int64], form: NDArray[np.int64]
) -> NDArray[np.float64]:
    questions = len(meaning)
    row = np.arange(questions)[:, None]

    def directions(*counts: int) -> NDArray[np.float64]:
        return rng.normal(0.0, DIMENSIONS**-0.5, (questions, *counts, DIMENSIONS))

    vectors = (
        TOPIC**0.5 * directions(1)
        + FAMILY**0.5 * directions(FAMILIES)[row, meaning % FAMILIES]
        + MEANING**0.5 * directions(MEANINGS)[row, meaning]
        + FORM**0.5 * directions(MEANINGS, FORMS)[row, meaning, form]
    )
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors @ vectors.transpose(0, 2, 1)


def _labels(
    rng: np.random.Generator,
    meaning: NDArray[np.int64],
    form: NDArray[np.int64],
    ease: float,
    slope: float,
) -> NDArray[np.int64]:
    questions, answers = meaning.shape
    counts = np.stack([(meaning == k).sum(1) for k in range(MEANINGS)], axis=1) / answers
    entropy = -(counts * np.log(np.where(counts > 0, counts, 1.0))).sum(1)
    strings = np.array([len(np.unique(s)) for s in meaning * FORMS + form]) / answers
    agreement = 3.0 * counts.max(1) - 0.8 * entropy - 1.5 * strings - 0.2
    logit = slope * agreement + ease + rng.normal(0, 0.6, questions)
    right = rng.random(questions) < 1.0 / (1.0 + np.exp(-logit))
    confidently_wrong = rng.random(questions) < 0.06
    judge_error = rng.random(questions) < 0.04
    return ((right & ~confidently_wrong) ^ judge_error).astype(np.int64)
