"""Repeated deliveries: every row ends in exactly one place."""

from __future__ import annotations

from sgpu.scoring.dedupe import Candidate, Decision, Standing, decide
from sgpu.scoring.records import Reason


def one(request_id: str, content: str, line: int, split: int = 0) -> Candidate:
    return Candidate(request_id, content, ((split, line),), 0, "m", None, ("a", "b"))


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
    decision = decide([one("x", "A", 1), one("x", "B", 2)], {"x": Standing("A", "2026-11-19")})
    assert (decision.to_score, decision.already) == ([], 1)
    assert [row.place[1] for row in decision.refused] == [2]
    assert "2026-11-19" in decision.refused[0].detail


def test_a_day_that_is_replaced_scores_what_it_had() -> None:
    standing = {"x": Standing("A", "2026-11-20", replaced=True)}
    decision = decide([one("x", "A", 1), one("x", "B", 2), one("x", "A", 3)], standing)
    assert (lines(decision), decision.duplicates, len(decision.refused)) == ([1], 1, 1)
