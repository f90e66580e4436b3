"""None"""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.methods.clustering import (
    CONTRADICTS,
    ENTAILS,
    NEUTRAL,
    UNKNOWN,
    entailment_clusters,
    missing_answers,
    nli_relation,
)


def entailments(n, *pairs, both=True):
    """(N, N) one-hot entailments: of each answer to itself, and of the pairs in both directions."""
    entail = np.eye(n)
    for i, j in pairs:
        entail[i, j] = 1
        if both:
            entail[j, i] = 1
    return entail


def neutral_elsewhere(entail):
    return np.zeros_like(entail)


def cluster(entail, **options):
    return entailment_clusters(entail, neutral_elsewhere(entail), **options).tolist()


def one_by_one(same, reassign):
    """The loops of the published implementations, written plainly."""
    n = len(same)
    ids, n_clusters = [None] * n, 0
    for i in range(n):
        if ids[i] is None:
            ids[i] = n_clusters
            for j in range(i + 1, n):
                if same[i, j] and same[j, i] and (reassign or ids[j] is None):
                    ids[j] = n_clusters
            n_clusters += 1
    return ids


def test_identical_answers_are_one_cluster_and_unrelated_ones_n():
    assert cluster(np.ones((4, 4))) == [0, 0, 0, 0]
    assert cluster(np.eye(4)) == [0, 1, 2, 3]


def test_ids_run_in_order_of_first_appearance():
    assert cluster(entailments(5, (0, 2), (1, 3))) == [0, 1, 0, 1, 2]


def test_entailment_in_one_direction_is_not_the_same_meaning():
    assert cluster(entailments(3, (0, 1), (1, 2), both=False)) == [0, 1, 2]


def test_neutral_pairs_do_not_join_however_little_they_contradict():
    entail = np.full((2, 2), 0.45)
    assert entailment_clusters(entail, np.zeros((2, 2))).tolist() == [0, 1]


def test_an_answer_is_compared_with_the_first_of_a_cluster_only():
    assert cluster(entailments(3, (0, 1), (1, 2))) == [0, 0, 1]


def test_the_first_matching_cluster_wins_or_the_last_if_told_to():
    entail = entailments(3, (0, 2), (1, 2))
    assert cluster(entail) == [0, 1, 0]
    assert cluster(entail, reassign=True) == [0, 1, 1]


@pytest.mark.parametrize("reassign", [False, True])
@pytest.mark.parametrize("n", [1, 2, 11, 20])
def test_agrees_with_plain_loops_on_random_relations(n, reassign):
    rng = np.random.default_rng(n)
    same = rng.random((200, n, n)) < rng.random((200, 1, 1))
    entail = np.where(same, 0.9, rng.uniform(0, 0.3, same.shape))
    contradict = (1 - entail) * rng.random(same.shape)
    found = entailment_clusters(entail, contradict, reassign=reassign)
    np.testing.assert_array_equal(found, [one_by_one(rows, reassign) for rows in same])


def test_a_missing_answer_has_no_cluster_and_changes_no_other():
    entail = entailments(4, (0, 2), (1, 2), (2, 3))
    entail[1, :] = entail[:, 1] = np.nan
    assert cluster(entail) == [0, -1, 0, 1]


def test_a_missing_first_answer_opens_no_cluster():
    entail = np.ones((3, 3))
    entail[0, :] = entail[:, 0] = np.nan
    assert cluster(entail) == [-1, 0, 0]


def test_a_set_with_an_unknown_pair_is_missing_and_its_neighbours_are_not():
    entail = np.ones((2, 3, 3))
    entail[0, 0, 1] = np.nan
    assert cluster(entail) == [[-1, -1, -1], [0, 0, 0]]


def test_a_set_of_missing_answers_has_no_clusters():
    assert cluster(np.full((2, 2), np.nan)) == [-1, -1]


def test_the_diagonals_do_not_matter_unless_that_of_entail_is_nan():
    entail = np.ones((3, 3)) - np.eye(3)
    assert cluster(entail) == [0, 0, 0]
    unknown = np.where(np.eye(3, dtype=bool), np.nan, 0.0)
    assert entailment_clusters(entail, unknown).tolist() == [0, 0, 0]


def test_leading_shapes_are_kept_even_without_rows():
    assert cluster(np.ones((2, 3, 4, 4))) == [[[0] * 4] * 3] * 2
    assert entailment_clusters(np.ones((0, 4, 4)), np.zeros((0, 4, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("entail", "contradict", "relation"),
    [
        (1.0, 0.0, ENTAILS),
        (0.0, 1.0, CONTRADICTS),
        (0.0, 0.0, NEUTRAL),
        (0.4, 0.35, ENTAILS),  # likeliest, though below one half
        (0.25, 0.4, CONTRADICTS),
        (0.5, 0.0, NEUTRAL),  # a tie goes to the class that binds less
        (0.5, 0.5, CONTRADICTS),
        (0.25, 0.25, NEUTRAL),
        (np.nan, 0.0, UNKNOWN),
        (1.0, np.nan, UNKNOWN),
    ],
)
def test_is_the_likeliest_class(entail, contradict, relation):
    assert nli_relation(np.array(entail), np.array(contradict)) == relation


def test_a_missing_answer_is_told_by_its_diagonal_entry():
    entail = np.zeros((2, 3, 3))
    entail[1, 2, :] = entail[1, :, 2] = np.nan
    np.testing.assert_array_equal(missing_answers(entail), [[False] * 3, [False, False, True]])
