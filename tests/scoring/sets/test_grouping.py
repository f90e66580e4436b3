"""Single answers to one question become one set, once."""

from __future__ import annotations

from dataclasses import replace

from sgpu.logs.records import MAX_SAMPLES, Reason
from sgpu.scoring.sets.dedupe import Decision, Fate, ScoreCandidate, group_id, grouped

HOUR = 3_600_000_000


def one(
    request_id: str, text: str, item: int, timestamp: int = 0, label: int | None = None
) -> ScoreCandidate:
    return ScoreCandidate(request_id, f"content of {text}", (item,), timestamp, "m", "r", label=label)


def fates(decision: Decision) -> list[tuple[int, Fate | Reason]]:
    return [(row.item, row.reason or row.fate) for row in decision.fates]


def test_a_window_has_one_id_and_the_next_another() -> None:
    assert group_id("key", 0, 3600) == group_id("key", HOUR - 1, 3600)
    assert group_id("key", HOUR, 3600) != group_id("key", 0, 3600) != group_id("other", 0, 3600)


def test_answers_become_a_set_in_the_order_of_their_time() -> None:
    decision = grouped("set", [one("b", "B", 1, 5), one("a", "A", 2, 9), one("c", "C", 3, 1)])
    [made] = decision.to_score
    assert (made.request_id, made.items, made.members) == ("set", (3, 1, 2), ("c", "b", "a"))
    assert (made.status, made.answered, decision.fates) == ("grouped", True, [])


def test_a_repeated_answer_counts_once() -> None:
    decision = grouped("set", [one("a", "A", 1), one("b", "B", 2), one("a", "A", 3)])
    assert decision.to_score[0].members == ("a", "b")
    assert fates(decision) == [(3, Fate.DUPLICATE)]


def test_a_lone_answer_is_too_few() -> None:
    decision = grouped("set", [one("a", "A", 1)])
    assert (decision.to_score, fates(decision)) == ([], [(1, Reason.TOO_FEW)])


def test_a_lone_answer_with_its_question_can_be_asked_again() -> None:
    decision = grouped("set", [replace(one("a", "A", 1), askable=True)])
    [made] = decision.to_score
    assert (made.answered, made.members, made.reason) == (False, ("a",), Reason.TOO_FEW)
    assert decision.fates == []


def test_an_answer_that_comes_after_its_set_was_scored_is_late() -> None:
    answers = [one("a", "A", 1), one("b", "B", 2), one("c", "C", 3)]
    decision = grouped("set", answers, {("m", "a"), ("m", "b")}, scored=2)
    assert decision.to_score == []
    assert fates(decision) == [(1, Fate.ALREADY), (2, Fate.ALREADY), (3, Reason.LATE_FOR_GROUP)]


def test_a_set_is_full_with_its_first_answers() -> None:
    answers = [one(f"{i:04}", str(i), i) for i in range(MAX_SAMPLES + 2)]
    decision = grouped("set", answers[::-1])
    assert decision.to_score[0].members == tuple(f"{i:04}" for i in range(MAX_SAMPLES))
    assert fates(decision) == [(i, Reason.GROUP_FULL) for i in (MAX_SAMPLES, MAX_SAMPLES + 1)]


def test_an_answer_that_is_in_another_set_stays_there() -> None:
    decision = grouped("set", [one(name, name, i) for i, name in enumerate("abc")], {("m", "a")})
    assert decision.to_score[0].members == ("b", "c")
    assert fates(decision) == [(0, Fate.ALREADY)]


def test_of_a_lone_answer_that_is_in_another_set_none_is_left() -> None:
    decision = grouped("set", [one("a", "a", 0)], {("m", "a")})
    assert (decision.to_score, fates(decision)) == ([], [(0, Fate.ALREADY)])


def test_the_sets_of_one_folder_are_never_those_of_another() -> None:
    assert group_id("key", 0, 3600, "2026-11-20") != group_id("key", 0, 3600, "2026-11-21")


def test_a_label_counts_where_all_answers_have_it() -> None:
    same, differ = (
        [one("a", "A", 1, label=1), one("b", "B", 2, label=1)],
        [one("a", "A", 1, label=1), one("b", "B", 2)],
    )
    assert [grouped("set", answers).to_score[0].label for answers in (same, differ)] == [1, None]
