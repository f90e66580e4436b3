import numpy as np

from sgpu.methods.likelihood import answer_log_likelihoods


def test_sums_the_tokens_of_each_answer_and_counts_them():
    log_likelihoods, n_tokens = answer_log_likelihoods([[[-1.0, -0.5], [-2.0]], [[-0.25], [-1.0, -1.0]]], 2)
    np.testing.assert_array_equal(log_likelihoods, [[-1.5, -2.0], [-0.25, -2.0]])
    np.testing.assert_array_equal(n_tokens, [[2, 1], [1, 2]])


def test_an_answer_without_tokens_is_unknown_not_certain():
    log_likelihoods, n_tokens = answer_log_likelihoods([[[], [-1.0]], []], 2)
    np.testing.assert_array_equal(log_likelihoods, [[np.nan, -1.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(n_tokens, [[0, 1], [0, 0]])


def test_impossible_and_unknown_tokens_pass_through():
    log_likelihoods, _ = answer_log_likelihoods([[[-1.0, -np.inf], [-1.0, np.nan]]], 2)
    np.testing.assert_array_equal(log_likelihoods, [[-np.inf, np.nan]])
