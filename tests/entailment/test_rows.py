"""Entailments of a batch: one backend call, missing kept apart from contradicting; distinct ordered pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sgpu.entailment.base import AnswerPair, Floats
from sgpu.entailment.rows import AnswerSet, entailment_rows, relations
from sgpu.entailment.two_way import AliasBackend
from sgpu.errors import StageError
from sgpu.storage.tables import ENTAILMENT, RESPONSES


class NumberedBackend:
    """Gives every pair its place as the verdict, and remembers what it was asked."""

    name = "numbered"

    def __init__(self, reads_question: bool = True) -> None:
        self.reads_question = reads_question
        self.calls: list[list[AnswerPair]] = []

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
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
        def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
            return super().classify(pairs)[1:]

    with pytest.raises(StageError, match=r"'numbered' returned verdicts of shape \(1, 3\) for 2 pairs"):
        relations([AnswerSet("q", ("a", "b"))], Forgetful())


QUESTIONS = {"q1": "Capital of France?", "q2": "Capital of Italy?"}


class RecordingBackend:
    """Equal words entail, as with `alias`; of a text "?" nothing can be said."""

    name, reads_question = "recording", True

    def __init__(self) -> None:
        self.calls: list[list[AnswerPair]] = []

    def classify(self, pairs: Sequence[AnswerPair]) -> Floats:
        self.calls.append(list(pairs))
        verdicts = AliasBackend().classify(pairs)
        verdicts[["?" in (pair.premise, pair.hypothesis) for pair in pairs]] = np.nan
        return verdicts


def response(question_id: str, answers: list[str | None] | None, **changes: Any) -> dict[str, Any]:
    return {"question_id": question_id, "status": "ok", "answers": answers, **changes}


def rows_of(*rows: dict[str, Any], n: int, backend: Any = None) -> list[dict[str, Any]]:
    batch = pa.Table.from_pylist(list(rows), schema=RESPONSES.schema)
    table = entailment_rows(batch, QUESTIONS, backend or RecordingBackend(), n, threshold=0.7)
    assert table.schema.equals(ENTAILMENT.schema)
    return table.to_pylist()


def test_matrices_are_flattened_row_by_row_and_clusters_follow_them() -> None:
    (row,) = rows_of(response("q1", ["Paris", "Lyon", "paris"]), n=3)
    assert row["entail"] == [1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert row["contradict"] == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert row["neutral"] == [0] * 9
    assert row["clusters"] == [0, 1, 0]
    assert (row["status"], row["error"], row["threshold"]) == ("ok", None, 0.7)
    assert (row["n"], row["n_distinct"], row["n_blank"]) == (3, 3, 0)


def test_the_pairs_of_the_whole_batch_go_to_the_backend_in_one_call() -> None:
    backend = RecordingBackend()
    rows = rows_of(response("q2", ["a", "b"]), response("q1", ["a", "c"]), n=2, backend=backend)
    assert [row["question_id"] for row in rows] == ["q2", "q1"]
    assert [[pair.question for pair in call] for call in backend.calls] == [
        [QUESTIONS["q2"]] * 2 + [QUESTIONS["q1"]] * 2
    ]


def test_only_the_first_n_answers_are_read() -> None:
    backend = RecordingBackend()
    (row,) = rows_of(response("q1", ["a", "b", "c"]), n=2, backend=backend)
    assert row["n"] == 2 and len(row["entail"]) == 4 and len(backend.calls[0]) == 2


def test_a_missing_answer_is_null_and_in_no_cluster() -> None:
    (row,) = rows_of(response("q1", ["a", None, "A"]), n=3)
    assert row["entail"] == [1, None, 1, None, None, None, 1, None, 1]
    assert row["clusters"] == [0, None, 0]
    assert (row["status"], row["n_distinct"]) == ("ok", 2)


def test_blank_answers_are_read_and_counted() -> None:
    (row,) = rows_of(response("q1", ["", " ", "a"]), n=3)
    assert row["n_blank"] == 2 and row["clusters"] == [0, 0, 1]


def test_a_pair_without_a_verdict_leaves_the_row_without_clusters_but_keeps_the_rest() -> None:
    (row,) = rows_of(response("q1", ["a", "?", None]), n=3)
    assert (row["status"], row["error"]) == ("missing", "2 of 4 pairs got no readable verdict")
    assert row["clusters"] is None
    assert row["entail"] == [1, None, None, None, 1, None, None, None, None]


@pytest.mark.parametrize(
    ("row", "status", "error"),
    [
        (response("q1", None, status="failed", error="too long"), "missing", "set is 'failed': too long"),
        (response("q1", None, status="missing"), "missing", "set is 'missing': no reason given"),
        (response("q9", ["a", "b"]), "missing", "no such question_id"),
        (response("q1", ["a"]), "failed", "1 answers, 2 needed"),
        (response("q1", None), "failed", "0 answers, 2 needed"),
        (response("q1", [None, None]), "missing", "all 2 answers are missing"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(row: dict[str, Any], status: str, error: str) -> None:
    made, good = rows_of(row, response("q2", ["a", "b"]), n=2)
    assert made["status"] == status and error in made["error"]
    assert made["entail"] is None and made["clusters"] is None
    assert good["status"] == "ok"


def test_one_answer_entails_itself() -> None:
    backend = RecordingBackend()
    (row,) = rows_of(response("q1", ["a"]), n=1, backend=backend)
    assert (row["entail"], row["clusters"], backend.calls) == ([1], [0], [])


def test_an_empty_batch_gives_an_empty_table() -> None:
    assert rows_of(n=2) == []
