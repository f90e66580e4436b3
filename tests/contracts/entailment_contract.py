"""What every entailment backend must hold. Inherit it, give the fixture `backend`, `same` and `different`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sgpu.entailment.base import CONTRADICT, ENTAIL, NEUTRAL, AnswerPair, Backend

QUESTION = "What is the capital of the Netherlands?"


class EntailmentContract:
    same: AnswerPair  # two different texts, of which this backend must say that the first entails the second
    different: AnswerPair

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    def test_it_has_a_name(self, backend: Backend) -> None:
        assert backend.name

    def test_what_entails_is_told_from_what_does_not(self, backend: Backend) -> None:
        likeliest = backend.classify([self.same, self.different]).argmax(axis=1)
        assert likeliest[0] == ENTAIL and likeliest[1] in (NEUTRAL, CONTRADICT)

    def test_no_pairs_give_no_rows(self, backend: Backend) -> None:
        assert backend.classify([]).shape == (0, 3)

    def test_a_verdict_is_a_distribution(self, backend: Backend) -> None:
        verdicts = backend.classify([self.same, self.different])
        assert verdicts.dtype == np.float64
        assert verdicts.sum(axis=1) == pytest.approx(1, abs=1e-12) and np.all(verdicts >= 0)

    def test_order_and_company_change_only_rounding(self, backend: Backend) -> None:
        longer = AnswerPair(QUESTION, "one", "a longer text of some more words")
        pairs = [self.same, self.different, longer, self.same]
        alone = {pair: backend.classify([pair])[0] for pair in pairs}
        for seed in range(3):
            shuffled = random.Random(seed).sample(pairs, len(pairs))
            expected = np.array([alone[pair] for pair in shuffled])
            assert backend.classify(shuffled) == pytest.approx(expected, abs=1e-5, nan_ok=True)

    @pytest.mark.parametrize(
        "text", ["", " ", "\x00", "\u2028", "{question}", "[SEP]", "%s" * 50, "𝕏" * 3000, "a\u0301" * 50]
    )
    def test_hostile_text_is_read_without_an_error(self, backend: Backend, text: str) -> None:
        pairs = [AnswerPair(QUESTION, text, "The Hague"), AnswerPair(text, "The Hague", text)]
        assert backend.classify(pairs).shape == (2, 3)
