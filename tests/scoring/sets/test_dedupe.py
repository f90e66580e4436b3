"""Repeated deliveries: every row ends in exactly one place."""

from __future__ import annotations

from sgpu.logs.records import Reason
from sgpu.scoring.sets.dedupe import (
    CommittedRequest,
    Decision,
    Fate,
    ScoreCandidate,
    content_sha256,
    decide,
)


def one(request_id: str, content: str, item: int) -> ScoreCandidate:
    return ScoreCandidate(request_id, content, (item,), 0, "m", None, ("a", "b"))


def items(decision: Decision) -> list[int]:
    return [candidate.items[0] for candidate in decision.to_score]


def count(decision: Decision, fate: Fate) -> int:
    return sum(row.fate is fate for row in decision.fates)


def duplicates(decision: Decision) -> int:
    return count(decision, Fate.DUPLICATE)


def already(decision: Decision) -> int:
    return count(decision, Fate.ALREADY)


def reasons(decision: Decision) -> list[tuple[int, Reason | None]]:
    return [(row.item, row.reason) for row in decision.fates if row.fate is Fate.REFUSED]


def details(decision: Decision) -> list[str | None]:
    return [row.detail for row in decision.fates if row.fate is Fate.REFUSED]


def test_a_repeated_row_is_scored_once_and_the_first_counts() -> None:
    decision = decide([one("x", "A", 2), one("x", "A", 5), one("x", "A", 9)], {})
    assert (items(decision), duplicates(decision), reasons(decision)) == ([2], 2, [])


def test_rows_that_contradict_each_other_are_all_refused() -> None:
    decision = decide([one("x", "A", 1), one("x", "B", 2), one("x", "A", 3), one("y", "C", 4)], {})
    assert items(decision) == [4]
    assert reasons(decision) == [(n, Reason.CONFLICT) for n in (1, 2, 3)]


def test_what_is_committed_stays_and_other_content_is_refused() -> None:
    decision = decide([one("x", "A", 1), one("x", "B", 2)], {("m", "x"): CommittedRequest("A", "2026-11-19")})
    assert (decision.to_score, already(decision)) == ([], 1)
    assert reasons(decision) == [(2, Reason.CONFLICT)]
    assert "2026-11-19" in str(details(decision)[0])


def test_a_day_that_is_replaced_scores_what_it_had() -> None:
    standing = {("m", "x"): CommittedRequest("A", "2026-11-20", replaced=True)}
    decision = decide([one("x", "A", 1), one("x", "B", 2), one("x", "A", 3)], standing)
    assert (items(decision), duplicates(decision), len(reasons(decision))) == ([1], 1, 1)


def answered(item: int, *texts: str, model: str = "m") -> ScoreCandidate:
    return ScoreCandidate("x", content_sha256(model, texts), (item,), 0, model, None, texts)


def test_an_id_of_two_models_is_two_requests() -> None:
    decision = decide([answered(1, "a", "b"), answered(2, "c", "d", model="other")], {})
    assert (items(decision), reasons(decision)) == ([1, 2], [])
    standing = {("m", "x"): CommittedRequest(content_sha256("m", ["a", "b"]), "2026-11-19")}
    decision = decide([answered(1, "a", "b"), answered(2, "c", "d", model="other")], standing)
    assert (items(decision), already(decision)) == ([2], 1)


def test_the_same_answers_in_another_order_are_the_same() -> None:
    decision = decide([answered(1, "a", "b", "b"), answered(2, "b", "a", "b")], {})
    assert (items(decision), duplicates(decision)) == ([1], 1)
    assert reasons(decide([answered(1, "a", "b", "b"), answered(2, "b", "a", "a")], {})) == [
        (1, Reason.CONFLICT), (2, Reason.CONFLICT),
    ]  # fmt: skip


def test_a_row_that_grew_replaces_its_parts() -> None:
    decision = decide([answered(1, "a", "b"), answered(2, "b", "c", "a"), answered(3, "c", "a")], {})
    assert (items(decision), duplicates(decision), reasons(decision)) == ([2], 2, [])
    standing = {("m", "x"): CommittedRequest(content_sha256("m", ["a", "b", "c"]), "2026-11-19")}
    assert already(decide([answered(1, "a", "b"), answered(2, "b", "c", "a")], standing)) == 2


def test_a_row_that_grew_after_it_was_scored_is_told_and_taken_where_the_day_is_replaced() -> None:
    rows = [answered(1, "b", "a"), answered(2, "b", "a", "c")]
    content = content_sha256("m", ["a", "b"])
    decision = decide(rows, {("m", "x"): CommittedRequest(content, "2026-11-19")})
    assert (already(decision), reasons(decision)) == (1, [(2, Reason.GREW)])
    assert "its first 2 answers were scored for 2026-11-19" in str(details(decision)[0])
    decision = decide(rows, {("m", "x"): CommittedRequest(content, "2026-11-19", replaced=True)})
    assert (items(decision), duplicates(decision), reasons(decision)) == ([2], 1, [])
