"""From answers to distinct ordered pairs and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sgpu.entailment.base import Floats, Pair
from sgpu.entailment.pairs import AnswerSet, relations
from sgpu.errors import StageError


class NumberedBackend:
    """Gives every pair its place as the verdict, and remembers what it was asked."""

    name = "numbered"

    def __init__(self, reads_question: bool = True) -> None:
        self.reads_question = reads_question
        self.calls: list[list[Pair]] = []

    def classify(self, pairs: Sequence[Pair]) -> Floats:
        self.calls.append(list(pairs))
        return np.arange(len(pairs))[:, None] + np.array([0.1, 0.2, 0.3])


def test_every_ordered_pair_of_different_texts_is_asked_once() -> None:
    backend = NumberedBackend()
    relations([AnswerSet("q", ("a", "b", "a", "c", "b"))], backend)
    assert [[(pair.premise, pair.hypothesis) for pair in call] for call in backend.calls] == [
        [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")]
    ]


def test_verdicts_stand_where_their_answers_stand() -> None:
    backend = NumberedBackend()
    (relation,) = relations([AnswerSet("q", ("a", "b", "a"))], backend)
    same, ab, ba = [1, 0, 0], [0.1, 0.2, 0.3], [1.1, 1.2, 1.3]
    assert relation.tolist() == [[same, ab, same], [ba, same, ba], [same, ab, same]]


def test_identical_answers_need_no_backend() -> None:
    backend = NumberedBackend()
    (relation,) = relations([AnswerSet("q", ("a",) * 4)], backend)
    assert backend.calls == []
    assert relation == pytest.approx(np.broadcast_to([1.0, 0.0, 0.0], (4, 4, 3)))


def test_texts_that_differ_in_anything_are_two() -> None:
    backend = NumberedBackend()
    relations([AnswerSet("q", ("Paris", "paris", "Paris "))], backend)
    assert len(backend.calls[0]) == 6


def test_of_a_missing_answer_nothing_is_known() -> None:
    (relation,) = relations([AnswerSet("q", ("a", None, "b"))], NumberedBackend())
    unknown = np.isnan(relation).all(axis=-1)
    assert unknown.tolist() == [[False, True, False], [True, True, True], [False, True, False]]
    assert not np.isnan(relation[~unknown]).any()


def test_an_empty_answer_is_an_answer() -> None:
    backend = NumberedBackend()
    (relation,) = relations([AnswerSet("q", ("", "a"))], backend)
    assert not np.isnan(relation).any() and len(backend.calls[0]) == 2


@pytest.mark.parametrize(("reads_question", "asked"), [(True, 4), (False, 2)])
def test_sets_share_pairs_where_the_question_does_not_matter(reads_question: bool, asked: int) -> None:
    backend = NumberedBackend(reads_question)
    first, second = relations([AnswerSet("q1", ("a", "b")), AnswerSet("q2", ("b", "a"))], backend)
    assert [len(call) for call in backend.calls] == [asked]
    assert (first[0, 1].tolist() == second[1, 0].tolist()) is not reads_question
    assert [pair.question for pair in backend.calls[0]] == (
        ["q1", "q1", "q2", "q2"] if reads_question else ["", ""]
    )


def test_sets_may_differ_in_size() -> None:
    shapes = [
        r.shape for r in relations([AnswerSet("q", ("a",)), AnswerSet("q", ("a", "b"))], NumberedBackend())
    ]
    assert shapes == [(1, 1, 3), (2, 2, 3)]
    assert relations([], NumberedBackend()) == []


def test_a_backend_that_loses_pairs_is_an_error() -> None:
    class Forgetful(NumberedBackend):
        def classify(self, pairs: Sequence[Pair]) -> Floats:
            return super().classify(pairs)[1:]

    with pytest.raises(StageError, match=r"'numbered' returned verdicts of shape \(1, 3\) for 2 pairs"):
        relations([AnswerSet("q", ("a", "b"))], Forgetful())
