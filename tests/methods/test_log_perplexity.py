import math

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.methods.base import METHODS, CellFeatures
from sgpu.methods.likelihood import LOG_PERPLEXITY, log_perplexity


def features(token_logprobs):
    q = len(token_logprobs)
    return CellFeatures([str(i) for i in range(q)], [["x"]] * q, token_logprobs=token_logprobs)


def test_is_minus_the_mean_token_logprob():
    assert log_perplexity([math.log(0.5), math.log(0.125)]) == pytest.approx(math.log(4), rel=1e-15)


def test_an_answer_without_tokens_is_missing_not_certain():
    assert math.isnan(log_perplexity([]))


def test_a_token_of_probability_zero_is_infinitely_surprising():
    assert log_perplexity([-0.1, -math.inf]) == math.inf


def test_an_unknown_token_makes_the_answer_unknown():
    assert math.isnan(log_perplexity([-0.1, math.nan]))


def test_confidence_is_that_of_the_first_answer_with_the_sign_turned():
    confidence = LOG_PERPLEXITY.confidence(features([[[-1.0, -3.0], [-9.0]], [[], [-1.0]], []]))
    np.testing.assert_array_equal(confidence, [-2.0, np.nan, np.nan])


def test_a_cell_without_logprobs_is_refused_by_name():
    with pytest.raises(DataError, match=r"log_perplexity.*token_logprobs"):
        METHODS.get("log_perplexity").confidence(CellFeatures(["a"], [["x"]]))


def test_says_which_log_probabilities_it_reads():
    assert "before temperature" in str(LOG_PERPLEXITY.settings["log_probs"])
