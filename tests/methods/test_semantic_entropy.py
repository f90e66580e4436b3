import math

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.methods.base import CellFeatures
from sgpu.methods.discrete_semantic_entropy import discrete_semantic_entropy
from sgpu.methods.semantic_entropy import METHOD, configure_semantic_entropy, semantic_entropy

TOKENS = [[-0.2, -0.9], [-0.1], [-1.2, -0.4, -0.6], [-0.3, -0.3], [-2.0]]
CLUSTERS = np.array([0, 1, 0, 1, 2])


def plain(log_likelihoods, clusters):
    """The equation on probabilities, one response set."""
    p = [math.exp(value) for value in log_likelihoods]
    shares = {}
    for value, k in zip(p, clusters, strict=True):
        shares[k] = shares.get(k, 0.0) + value / math.fsum(p)
    return -math.fsum(share * math.log(share) for share in shares.values())


def features(token_logprobs, clusters):
    q = len(token_logprobs)
    return CellFeatures(
        [str(i) for i in range(q)], [["x"]] * q, token_logprobs=token_logprobs, clusters=np.array(clusters)
    )


def test_matches_the_golden_value_of_joint_probabilities():
    joint = np.array([sum(tokens) for tokens in TOKENS])
    assert semantic_entropy(joint, CLUSTERS) == pytest.approx(0.7523681843, abs=5e-11)
    other = semantic_entropy(np.array([-2, -1.5, -3, -2.5, -0.7]), np.array([0, 0, 1, 0, 1]))
    assert other == pytest.approx(0.6873876085, abs=5e-11)


def test_matches_the_golden_value_of_length_normalised_probabilities():
    joint, lengths = np.array([sum(t) for t in TOKENS]), np.array([len(t) for t in TOKENS])
    assert semantic_entropy(joint, CLUSTERS, lengths) == pytest.approx(0.8289841740, abs=5e-11)


def test_agrees_with_the_plain_equation_on_random_sets():
    rng = np.random.default_rng(0)
    logs, clusters = -rng.exponential(8, size=(300, 20)), rng.integers(0, 7, size=(300, 20))
    expected = [plain(*row) for row in zip(logs, clusters, strict=True)]
    np.testing.assert_allclose(semantic_entropy(logs, clusters), expected, rtol=1e-12, atol=1e-14)


def test_equally_likely_answers_give_the_discrete_entropy():
    clusters = np.random.default_rng(0).integers(0, 5, size=(50, 20))
    likely = semantic_entropy(np.full((50, 20), -3.7), clusters)
    np.testing.assert_allclose(likely, discrete_semantic_entropy(clusters), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_one_cluster_gives_exactly_zero(n, order):
    logs = np.asarray(-np.random.default_rng(n).exponential(10, size=(500, n)), order=order)
    one = np.zeros((500, n), dtype=np.int64, order=order)
    entropy = semantic_entropy(logs, one)
    np.testing.assert_array_equal(entropy, 0.0)
    assert not np.signbit(entropy).any()
    assert [semantic_entropy(*row) for row in zip(logs, one, strict=True)] == [0.0] * 500


def test_joint_probabilities_below_the_smallest_float_count():
    logs = np.array([-800.0, -800.0])
    assert semantic_entropy(logs, np.array([0, 1])) == pytest.approx(math.log(2), rel=1e-14)


def test_an_impossible_answer_adds_nothing():
    logs = np.array([-1.0, -np.inf, -1.0])
    assert semantic_entropy(logs, np.array([0, 1, 2])) == pytest.approx(math.log(2), rel=1e-14)
    assert semantic_entropy(logs, np.array([0, 1, 0])) == 0.0


def test_answers_all_impossible_have_no_shares_and_are_missing():
    assert np.isnan(semantic_entropy(np.full(3, -np.inf), np.array([0, 1, 1])))


def test_an_unknown_likelihood_makes_the_entropy_unknown():
    assert np.isnan(semantic_entropy(np.array([-1.0, np.nan]), np.array([0, 1])))


def test_a_missing_answer_is_left_out_whatever_its_likelihood():
    logs, clusters = np.array([-1.0, np.nan, -2.0, -0.1]), np.array([0, -1, 1, -1])
    assert semantic_entropy(logs, clusters) == semantic_entropy(logs[[0, 2]], np.array([0, 1]))
    assert semantic_entropy(logs, clusters, np.array([2, 0, 4, 0])) == pytest.approx(math.log(2), rel=1e-14)


@pytest.mark.parametrize("likelihood", [-1.0, np.nan])
def test_no_answer_left_is_missing_not_certain(likelihood):
    assert np.isnan(semantic_entropy(np.full(2, likelihood), np.array([-1, -1])))


@pytest.mark.parametrize("n_tokens", [None, [1, 1]])
def test_shapes_that_differ_are_refused(n_tokens):
    with pytest.raises(DataError, match=r"\(3,\).*\(2,\)"):
        semantic_entropy([-1.0, -2.0, -3.0], [0, 1] if n_tokens is None else [0, 1, 1], n_tokens)


def test_method_is_joint_by_default_and_length_normalised_on_demand():
    cell = features([TOKENS], [CLUSTERS])
    assert METHOD.confidence(cell) == pytest.approx(-0.7523681843, abs=5e-11)
    normalised = configure_semantic_entropy(length_normalised=True)
    assert normalised.confidence(cell) == pytest.approx(-0.8289841740, abs=5e-11)
    assert (METHOD.settings["length_normalised"], normalised.settings["length_normalised"]) == (False, True)


def test_an_answer_without_tokens_is_not_taken_for_a_certain_one():
    with_silence = METHOD.confidence(features([[*TOKENS, []]], [[*CLUSTERS, 3]]))
    assert with_silence == METHOD.confidence(features([TOKENS], [CLUSTERS]))


def test_a_question_without_responses_is_missing():
    confidence = METHOD.confidence(features([[], TOKENS[:2]], [[-1, -1], [0, 0]]))
    np.testing.assert_array_equal(confidence, [np.nan, 0.0])


def test_says_which_log_probabilities_it_reads():
    assert "before temperature" in str(METHOD.settings["log_probs"])
