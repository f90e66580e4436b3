"""Entailment by equal words, and by vectors that are written down; the fit of the threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from sgpu.entailment.base import BACKENDS, AnswerPair, Backend
from sgpu.entailment.two_way import AliasBackend, CosineBackend, best_threshold, cosines, fit_threshold
from sgpu.errors import DataError
from tests.contracts.entailment_contract import QUESTION, EntailmentContract


class TestAliasBackendContract(EntailmentContract):
    same = AnswerPair(QUESTION, "The Hague.", "the hague")
    different = AnswerPair(QUESTION, "The Hague", "Den Haag")

    @pytest.fixture
    def backend(self) -> Backend:
        return AliasBackend()


@pytest.mark.parametrize(
    ("premise", "hypothesis", "entails"),
    [
        ("São Paulo", "sao paulo!", True),
        ("1,000", "1000", True),
        ("3.14", "314", False),
        ("Paris", "Paris, France", False),
        ("", "?", True),
        ("", "Paris", False),
    ],
)
def test_equal_words_entail_both_ways_and_others_contradict(
    premise: str, hypothesis: str, entails: bool
) -> None:
    pairs = [AnswerPair("", premise, hypothesis), AnswerPair("", hypothesis, premise)]
    assert AliasBackend().classify(pairs).tolist() == [[1, 0, 0] if entails else [0, 0, 1]] * 2


def test_the_registry_builds_it_without_arguments() -> None:
    assert BACKENDS.get("alias")().name == "alias"


ANGLES = {"Paris": 0, "It is Paris": 20, "The city of Paris": 25, "Lyon": 60, "Marseille": 100}


class AngleEncoder:
    """Puts every known text at its angle in the plane, any other at one of its own."""

    name, dtype, dim, fingerprint = "angles", "float32", 2, "0"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += texts
        angles = np.deg2rad([ANGLES.get(text, 180 + sum(text.encode()) % 90) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32).reshape(-1, 2)


class TestCosineContract(EntailmentContract):
    same = AnswerPair(QUESTION, "Paris", "It is Paris")
    different = AnswerPair(QUESTION, "Paris", "Lyon")

    @pytest.fixture
    def backend(self) -> Backend:
        return CosineBackend(AngleEncoder(), 0.9)


def test_cosines_are_those_of_the_angles() -> None:
    found = cosines(AngleEncoder(), [("Paris", "Lyon"), ("Lyon", "Marseille"), ("Lyon", "Paris")])
    assert found == pytest.approx(np.cos(np.deg2rad([60, 40, 60])), abs=1e-6)
    assert found[0] == found[2]


def test_every_different_text_is_encoded_once() -> None:
    encoder = AngleEncoder()
    CosineBackend(encoder, 0.5).classify([AnswerPair("", "Paris", "Lyon"), AnswerPair("", "Lyon", "Paris")])
    assert sorted(encoder.encoded) == ["Lyon", "Paris"]


@pytest.mark.parametrize(("threshold", "verdict"), [(0.49, [1, 0, 0]), (0.51, [0, 0, 1])])
def test_the_threshold_parts_one_meaning_from_two(threshold: float, verdict: list[int]) -> None:
    backend = CosineBackend(AngleEncoder(), threshold)
    assert backend.classify([AnswerPair("", "Paris", "Lyon")]).tolist() == [verdict]


@pytest.mark.parametrize("threshold", [1.1, -1.1, float("nan")])
def test_a_threshold_that_is_no_cosine_is_refused(threshold: float) -> None:
    with pytest.raises(DataError, match="cosine threshold is"):
        CosineBackend(AngleEncoder(), threshold)


def test_the_best_threshold_of_separable_pairs_lies_half_way() -> None:
    found = best_threshold(np.array([0.9, 0.7, 0.4, 0.1]), np.array([True, True, False, False]))
    assert found == (pytest.approx(0.55), 1.0)


def test_no_other_threshold_separates_better() -> None:
    draw = np.random.default_rng(0)
    same = draw.random(300) < 0.3
    similarity = np.where(same, draw.normal(0.7, 0.2, 300), draw.normal(0.4, 0.2, 300)).clip(-1, 1)
    threshold, accuracy = best_threshold(similarity, same)
    assert accuracy == pytest.approx(balanced_accuracy_score(same, similarity >= threshold))
    others = [balanced_accuracy_score(same, similarity >= t) for t in np.linspace(0, 1, 101)]
    assert accuracy >= max(others) - 1e-12


def test_pairs_come_from_the_votes_on_one_question() -> None:
    fit = fit_threshold(
        AngleEncoder(),
        [
            ["Paris", "It is Paris", "Lyon", "Paris", "The city of Paris"],
            ["Marseille", "Lyon", None, ""],  # two wrong answers tell nothing
            ["Paris", "Marseille", "Lyon", "x"],
        ],
        [[1, 1, 0, 1, 1], [0, 0, 1, 1], [1, None, 0, 0]],
    )
    assert fit is not None
    # Three right ones pairwise; each of them with Lyon; Paris with Lyon and with x.
    assert (fit.n_same, fit.n_different) == (3, 5)
    assert fit.balanced_accuracy == 1.0
    # Between "It is Paris" or "The city of Paris" on "Paris" (25 degrees) and on "Lyon" (35 degrees).
    assert fit.threshold == pytest.approx(np.cos(np.deg2rad([25, 35])).mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("answers", "votes"),
    [([], []), ([["a", "b"]], [[1, 1]]), ([["a", "b"]], [[1, 0]]), ([["a", "a"]], [[1, 1]])],
)
def test_without_both_kinds_of_pairs_nothing_is_fitted(
    answers: list[list[str]], votes: list[list[int]]
) -> None:
    assert fit_threshold(AngleEncoder(), answers, votes) is None


def test_the_registry_knows_it() -> None:
    assert BACKENDS.get("cosine") is CosineBackend
