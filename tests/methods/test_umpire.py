import math

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.methods.base import CellFeatures
from sgpu.methods.umpire import METHOD, balancing_alpha, umpire

RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(9, 5, 32))
LOG_LIKELIHOODS = -RNG.exponential(size=(9, 5))


def cell(hidden=HIDDEN, log_likelihoods=LOG_LIKELIHOODS):
    """Each answer's log-likelihood is shared among two tokens."""
    tokens = [[[value / 4, value * 3 / 4] for value in row] for row in log_likelihoods]
    q, n = log_likelihoods.shape
    return CellFeatures(
        [str(i) for i in range(q)], [["x"] * n] * q, token_logprobs=tokens, last_hidden=hidden
    )


def answer_by_answer(hidden, log_likelihoods, alpha):
    """The formula with loops, eigenvalues and the probabilities themselves."""
    n = len(hidden)
    cosines = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            cosines[i, j] = (
                hidden[i] @ hidden[j] / math.dist(hidden[i], 0 * hidden[i]) / np.sqrt(hidden[j] @ hidden[j])
            )
    volume = sum(math.log(value + 1e-8) for value in np.linalg.eigvalsh(cosines)) / (2 * n)
    return volume + alpha * sum(1 - math.exp(value) for value in log_likelihoods) / n


def test_agrees_with_a_slow_implementation():
    expected = [answer_by_answer(h, logs, 0.7) for h, logs in zip(HIDDEN, LOG_LIKELIHOODS, strict=True)]
    np.testing.assert_allclose(umpire(HIDDEN, LOG_LIKELIHOODS, 0.7), expected, rtol=1e-11)


def test_identical_answers_give_the_value_of_the_published_code():
    hidden = np.tile(HIDDEN[0, 0], (5, 1))
    assert umpire(hidden, np.full(5, math.log(0.905)), alpha=1.0) == pytest.approx(-7.112, abs=5e-4)


def test_twenty_identical_answers_have_the_closed_form():
    expected = (19 * math.log(1e-8) + math.log(20 + 1e-8)) / 40
    volume = umpire(np.tile(HIDDEN[0, 0], (20, 1)), np.zeros(20), alpha=1.0)
    assert volume == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(-8.675, abs=1e-3)


def test_a_single_answer_is_as_uncertain_as_it_is_improbable():
    assert umpire(HIDDEN[0, :1], [math.log(0.25)], alpha=2.0) == pytest.approx(1.5, abs=1e-8)


def test_an_impossible_answer_is_wholly_improbable():
    certain, impossible = (umpire(HIDDEN[0, :1], [value], alpha=1.0) for value in (0.0, -math.inf))
    assert impossible - certain == 1.0


def test_likelihoods_of_another_number_of_answers_are_refused():
    with pytest.raises(DataError, match=r"\(4,\)"):
        umpire(HIDDEN[0], np.zeros(4), alpha=1.0)


def test_alpha_gives_both_terms_the_same_median():
    alpha = balancing_alpha(HIDDEN, LOG_LIKELIHOODS)
    volume = umpire(HIDDEN, LOG_LIKELIHOODS, alpha=0.0)
    weighed = umpire(HIDDEN, LOG_LIKELIHOODS, alpha=alpha) - volume
    assert np.median(weighed) == pytest.approx(abs(np.median(volume)), rel=1e-12)


def test_missing_rows_do_not_take_part_in_the_choice_of_alpha():
    hidden, log_likelihoods = HIDDEN.copy(), LOG_LIKELIHOODS.copy()
    hidden[2, 0, 0], log_likelihoods[5, 1] = np.nan, np.nan
    kept = np.delete(np.arange(9), [2, 5])
    assert balancing_alpha(hidden, log_likelihoods) == balancing_alpha(HIDDEN[kept], LOG_LIKELIHOODS[kept])


def test_answers_that_are_all_certain_leave_alpha_undefined_not_infinite():
    assert balancing_alpha(HIDDEN, np.zeros((9, 5))) is None


def test_no_complete_row_leaves_alpha_undefined():
    assert balancing_alpha(HIDDEN, np.full((9, 5), np.nan)) is None
    assert balancing_alpha(HIDDEN[:0], np.zeros((0, 5))) is None


def test_method_sums_the_tokens_of_each_answer():
    expected = -umpire(HIDDEN, LOG_LIKELIHOODS, alpha=1.0)
    np.testing.assert_allclose(METHOD.confidence(cell()), expected, rtol=1e-13)


def test_tuning_takes_alpha_from_the_validation_rows_and_says_so():
    validation = cell(HIDDEN[:4], LOG_LIKELIHOODS[:4])
    tuned = METHOD.tune(validation)
    alpha = balancing_alpha(HIDDEN[:4], LOG_LIKELIHOODS[:4])
    assert tuned.settings["alpha"] == pytest.approx(alpha, rel=1e-12)
    assert tuned.settings["alpha_from"] == "validation"
    expected = -umpire(HIDDEN[4:], LOG_LIKELIHOODS[4:], alpha)
    np.testing.assert_allclose(tuned.confidence(cell(HIDDEN[4:], LOG_LIKELIHOODS[4:])), expected, rtol=1e-12)


def test_scored_rows_never_change_alpha():
    tuned = METHOD.tune(cell(HIDDEN[:4], LOG_LIKELIHOODS[:4]))
    one = tuned.confidence(cell(HIDDEN[4:5], LOG_LIKELIHOODS[4:5]))
    tuned.confidence(cell(HIDDEN[5:] * 3, LOG_LIKELIHOODS[5:] * 50))
    again = tuned.confidence(cell(HIDDEN[4:], LOG_LIKELIHOODS[4:]))
    assert again[0] == one[0]


def test_validation_rows_that_say_nothing_leave_the_default():
    tuned = METHOD.tune(cell(HIDDEN, np.zeros((9, 5))))
    assert (tuned.settings["alpha"], tuned.settings["alpha_from"]) == (1.0, "default")
    assert METHOD.tune(cell(HIDDEN[:0], np.zeros((0, 5)))).settings["alpha_from"] == "default"


def test_a_row_without_a_state_tokens_or_answers_is_missing():
    features = cell(HIDDEN[:4].copy(), LOG_LIKELIHOODS[:4])
    features.last_hidden[1, 0] = np.nan
    features.token_logprobs[2][3] = []
    features.token_logprobs[3] = []
    np.testing.assert_array_equal(np.isnan(METHOD.confidence(features)), [False, True, True, True])
