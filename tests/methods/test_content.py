"""Agreement on content as methods: they pass on its numbers, and decline where it says nothing."""

from __future__ import annotations

import numpy as np

from sgpu.methods.base import CellFeatures
from sgpu.methods.content import CONTENT_OVERLAP, SHARED_WORD

ANSWERS = [["Lima", "It is Lima", "Cusco"], ["Lima", "Lima", "Lima"]]


def test_a_question_whose_prompt_brings_the_answer_is_missing() -> None:
    questions = ["Capital of Peru?", "Lima is the capital of Peru. Capital of Peru?"]
    features = CellFeatures(["a", "b"], ANSWERS, questions)
    np.testing.assert_allclose(CONTENT_OVERLAP.confidence(features), [1 / 3, np.nan])
    np.testing.assert_allclose(SHARED_WORD.confidence(features), [1 / 2, np.nan])


def test_options_of_the_data_set_are_passed_on() -> None:
    features = CellFeatures(["a"], ANSWERS[1:], ["Where is Lima?"], [["Lima"]])
    assert CONTENT_OVERLAP.confidence(features) == [1]
