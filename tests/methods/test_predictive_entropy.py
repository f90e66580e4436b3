import math

import numpy as np
import pytest

from sgpu.methods.base import CellFeatures
from sgpu.methods.likelihood import PREDICTIVE_ENTROPY, log_perplexity, predictive_entropy

TOKENS = [[-0.2, -0.9], [-0.1], [-1.2, -0.4, -0.6], [-0.3, -0.3], [-2.0]]


def test_matches_the_value_of_jlko_and_lm_polygraph():
    assert predictive_entropy(TOKENS) == pytest.approx(0.7366666667, abs=5e-11)


def test_of_one_answer_is_its_log_perplexity():
    assert predictive_entropy(TOKENS[2:3]) == log_perplexity(TOKENS[2])


def test_an_answer_without_tokens_does_not_count():
    assert predictive_entropy([*TOKENS, []]) == predictive_entropy(TOKENS)


@pytest.mark.parametrize("token_logprobs", [[], [[], []]])
def test_no_tokens_at_all_is_missing(token_logprobs):
    assert math.isnan(predictive_entropy(token_logprobs))


def test_one_impossible_answer_makes_the_entropy_infinite():
    assert predictive_entropy([*TOKENS, [-math.inf]]) == math.inf


def test_confidence_falls_with_entropy_and_keeps_missing_rows():
    rows = [[[-0.1]], [[-2.0]], [[]]]
    confidence = PREDICTIVE_ENTROPY.confidence(
        CellFeatures(["a", "b", "c"], [["x"]] * 3, token_logprobs=rows)
    )
    np.testing.assert_array_equal(confidence, [-0.1, -2.0, np.nan])


def test_says_which_log_probabilities_it_reads():
    assert "before temperature" in str(PREDICTIVE_ENTROPY.settings["log_probs"])
