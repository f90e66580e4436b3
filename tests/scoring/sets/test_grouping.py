"""Single answers to one question become one set, once."""

from __future__ import annotations

from dataclasses import replace

from sgpu.logs.records import MAX_SAMPLES, Reason
from sgpu.scoring.sets.dedupe import CommittedSet, ScoreCandidate, group_id, grouped

HOUR = 3_600_000_000


def one(
    request_id: str, text: str, line: int, timestamp: int = 0, label: int | None = None
) -> ScoreCandidate:
    return ScoreCandidate(
        request_id, f"content of {text}", ((0, line),), timestamp, "m", "r", (text,), label=label
    )


def test_a_window_has_one_id_and_the_next_another() -> None:
    assert group_id("key", 0, 3600) == group_id("key", HOUR - 1, 3600)
    assert group_id("key", HOUR, 3600) != group_id("key", 0, 3600) != group_id("other", 0, 3600)


def test_answers_become_a_set_in_the_order_of_their_time() -> None:
    [made], rest = grouped({"set": [one("b", "B", 1, 5), one("a", "A", 2, 9), one("c", "C", 3, 1)]}, {})
    assert (made.request_id, made.texts, made.members) == ("set", ("C", "B", "A"), ("c", "b", "a"))
    assert (made.places, made.status, rest.refused) == (((0, 3), (0, 1), (0, 2)), "grouped", [])


def test_a_repeated_answer_counts_once() -> None:
    [made], rest = grouped({"set": [one("a", "A", 1), one("b", "B", 2), one("a", "A", 3)]}, {})
    assert (made.members, rest.duplicates) == (("a", "b"), 1)


def test_a_lone_answer_is_too_few() -> None:
    sets, rest = grouped({"set": [one("a", "A", 1)]}, {})
    assert (sets, [row.reason for row in rest.refused]) == ([], [Reason.TOO_FEW])


def test_a_lone_answer_with_its_question_can_be_asked_again() -> None:
    [made], rest = grouped({"set": [replace(one("a", "A", 1), prompt='"?"')]}, {})
    assert (made.texts, made.members, made.reason, rest.refused) == ((), ("a",), Reason.TOO_FEW, [])


def test_an_answer_that_comes_after_its_set_was_scored_is_late() -> None:
    committed = {"set": CommittedSet(frozenset({"a", "b"}), replaced=False, model="m")}
    sets, rest = grouped({"set": [one("a", "A", 1), one("b", "B", 2), one("c", "C", 3)]}, committed)
    assert (sets, rest.already) == ([], 2)
    assert [(row.request_id, row.reason) for row in rest.refused] == [("c", Reason.LATE_FOR_GROUP)]


def test_a_day_that_is_replaced_makes_its_sets_anew() -> None:
    committed = {"set": CommittedSet(frozenset({"a", "b"}), replaced=True)}
    [made], _ = grouped({"set": [one("a", "A", 1), one("b", "B", 2), one("c", "C", 3)]}, committed)
    assert made.members == ("a", "b", "c")


def test_a_set_is_full_with_its_first_answers() -> None:
    answers = [one(f"{i:04}", str(i), i) for i in range(MAX_SAMPLES + 2)]
    [made], rest = grouped({"set": answers[::-1]}, {})
    assert made.members == tuple(f"{i:04}" for i in range(MAX_SAMPLES))
    assert [(row.request_id, row.reason) for row in rest.refused] == [
        (f"{i:04}", Reason.GROUP_FULL) for i in (MAX_SAMPLES, MAX_SAMPLES + 1)
    ]


def test_an_answer_that_is_in_another_set_stays_there() -> None:
    committed = {"before": CommittedSet(frozenset({"a"}), replaced=False, model="m")}
    [made], rest = grouped({"set": [one(name, name, i) for i, name in enumerate("abc")]}, committed)
    assert made.members == ("b", "c") and rest.already == 1


def test_the_sets_of_one_folder_are_never_those_of_another() -> None:
    assert group_id("key", 0, 3600, "2026-11-20") != group_id("key", 0, 3600, "2026-11-21")


def test_a_label_counts_where_all_answers_have_it() -> None:
    same, differ = (
        [one("a", "A", 1, label=1), one("b", "B", 2, label=1)],
        [one("a", "A", 1, label=1), one("b", "B", 2)],
    )
    assert [grouped({"set": answers}, {})[0][0].label for answers in (same, differ)] == [1, None]
