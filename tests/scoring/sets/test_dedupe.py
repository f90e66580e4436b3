"""Repeated deliveries: every row ends in exactly one place."""

from __future__ import annotations

from sgpu.logs.records import Reason
from sgpu.scoring.sets.dedupe import (
    CommittedRequest,
    Decision,
    ScoreCandidate,
    content_sha256,
    decide,
    ordered_sha256,
)


def one(request_id: str, content: str, line: int, split: int = 0) -> ScoreCandidate:
    return ScoreCandidate(request_id, content, ((split, line),), 0, "m", None, ("a", "b"))


def lines(decision: Decision) -> list[int | None]:
    return [candidate.places[0][1] for candidate in decision.to_score]


def test_a_repeated_row_is_scored_once_and_the_first_counts() -> None:
    decision = decide([one("x", "A", 9), one("x", "A", 2), one("x", "A", 5)], {})
    assert (lines(decision), decision.duplicates, decision.refused) == ([2], 2, [])


def test_the_first_is_told_by_the_logs_and_not_by_the_order_of_reading() -> None:
    decision = decide([one("x", "A", 1, split=1), one("x", "A", 7, split=0)], {})
    assert decision.to_score[0].places == ((0, 7),)


def test_rows_that_contradict_each_other_are_all_refused() -> None:
    decision = decide([one("x", "A", 1), one("x", "B", 2), one("x", "A", 3), one("y", "C", 4)], {})
    assert lines(decision) == [4]
    assert [(row.place[1], row.reason) for row in decision.refused] == [
        (n, Reason.CONFLICT) for n in (1, 2, 3)
    ]


def test_what_is_committed_stays_and_other_content_is_refused() -> None:
    decision = decide([one("x", "A", 1), one("x", "B", 2)], {("m", "x"): CommittedRequest("A", "2026-11-19")})
    assert (decision.to_score, decision.already) == ([], 1)
    assert [row.place[1] for row in decision.refused] == [2]
    assert "2026-11-19" in decision.refused[0].detail


def test_a_day_that_is_replaced_scores_what_it_had() -> None:
    standing = {("m", "x"): CommittedRequest("A", "2026-11-20", replaced=True)}
    decision = decide([one("x", "A", 1), one("x", "B", 2), one("x", "A", 3)], standing)
    assert (lines(decision), decision.duplicates, len(decision.refused)) == ([1], 1, 1)


def answered(line: int, *texts: str, model: str = "m") -> ScoreCandidate:
    told = content_sha256(model, texts), ordered_sha256(model, texts)
    return ScoreCandidate("x", told[0], ((0, line),), 0, model, None, texts, ordered=told[1])


def reasons(decision: Decision) -> list[tuple[int | None, Reason]]:
    return [(row.place[1], row.reason) for row in decision.refused]


def test_an_id_of_two_models_is_two_requests() -> None:
    decision = decide([answered(1, "a", "b"), answered(2, "c", "d", model="other")], {})
    assert (lines(decision), decision.refused) == ([1, 2], [])
    standing = {("m", "x"): CommittedRequest(content_sha256("m", ["a", "b"]), "2026-11-19")}
    decision = decide([answered(1, "a", "b"), answered(2, "c", "d", model="other")], standing)
    assert (lines(decision), decision.already) == ([2], 1)


def test_the_same_answers_in_another_order_are_the_same() -> None:
    decision = decide([answered(1, "a", "b", "b"), answered(2, "b", "a", "b")], {})
    assert (lines(decision), decision.duplicates) == ([1], 1)
    assert reasons(decide([answered(1, "a", "b", "b"), answered(2, "b", "a", "a")], {})) == [
        (1, Reason.CONFLICT), (2, Reason.CONFLICT),
    ]  # fmt: skip


def test_an_older_table_knows_answers_in_their_order() -> None:
    standing = {("m", "x"): CommittedRequest(ordered_sha256("m", ["b", "a"]), "2026-11-19")}
    decision = decide([answered(1, "b", "a"), answered(2, "a", "b")], standing)
    assert (decision.already, decision.refused) == (2, [])
    assert reasons(decide([answered(2, "a", "b")], standing)) == [(2, Reason.CONFLICT)]


def test_a_row_that_grew_replaces_its_parts() -> None:
    decision = decide([answered(1, "a", "b"), answered(2, "b", "c", "a"), answered(3, "c", "a")], {})
    assert (lines(decision), decision.duplicates, decision.refused) == ([2], 2, [])
    standing = {("m", "x"): CommittedRequest(content_sha256("m", ["a", "b", "c"]), "2026-11-19")}
    assert decide([answered(1, "a", "b"), answered(2, "b", "c", "a")], standing).already == 2


def test_a_row_that_grew_after_it_was_scored_is_told_and_taken_where_the_day_is_replaced() -> None:
    rows = [answered(1, "b", "a"), answered(2, "b", "a", "c")]
    for content in (content_sha256("m", ["a", "b"]), ordered_sha256("m", ["b", "a"])):
        decision = decide(rows, {("m", "x"): CommittedRequest(content, "2026-11-19")})
        assert (decision.already, reasons(decision)) == (1, [(2, Reason.GREW)])
        assert "its first 2 answers were scored for 2026-11-19" in decision.refused[0].detail
        decision = decide(rows, {("m", "x"): CommittedRequest(content, "2026-11-19", replaced=True)})
        assert (lines(decision), decision.duplicates, decision.refused) == ([2], 1, [])
