"""From answers to a record: what is left out, in which order, and when nothing can be scored."""

from __future__ import annotations

from typing import Any

import pytest

from sgpu.logs.records import MAX_SAMPLES, MAX_TEXT, LogRecord, Reason, Rejected
from sgpu.logs.rows.assembly import Answer, Request, assemble
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.question import Question


def assembled(*answers: Answer, **changes: Any) -> Any:
    return assemble(Request("r", 0, "m", None, answers, **changes))


def texts(record: LogRecord) -> list[str]:
    return [sample.text for sample in record.samples]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(""), "empty"),
        (Answer(" \n\t "), "empty"),
        (Answer(None), "empty"),
        (Answer("x", "content_filter"), "content_filter"),
        (Answer("x", "SAFETY"), "content_filter"),
        (Answer("x", "tool_calls"), "tool_call"),
        (Answer("x", called_tool=True), "tool_call"),
        (Answer("x", "refusal"), "refusal"),
        (Answer(None, refused=True), "refusal"),
        (Answer("x", "abort"), "failed_request"),
    ],
)
def test_an_answer_that_is_none_is_left_out_with_its_reason(answer: Answer, reason: str) -> None:
    record = assembled(Answer("a"), answer, Answer("b"))
    assert texts(record) == ["a", "b"]
    assert record.dropped == (reason,)
    rejected = assembled(answer, answer)
    assert isinstance(rejected, Rejected) and rejected.reason == reason


def test_answers_cut_at_the_token_limit_are_kept_and_say_so() -> None:
    record = assembled(Answer("a", "length"), Answer("b", "stop"))
    assert [sample.finish_reason for sample in record.samples] == ["length", "stop"]


def test_answers_stand_in_the_order_of_their_index() -> None:
    record = assembled(Answer("c", index=2), Answer("a", index=0), Answer("b", index=1))
    assert texts(record) == ["a", "b", "c"]


def test_without_index_or_with_one_index_twice_the_order_of_the_log_stands() -> None:
    assert texts(assembled(Answer("b"), Answer("a"))) == ["b", "a"]
    assert texts(assembled(Answer("b", index=0), Answer("a", index=0))) == ["b", "a"]


@pytest.mark.parametrize("text", ["a\x00b", "أزرق", "👩‍👩‍👧‍👦", "e\u0301", "\u202eabc"])
def test_a_text_is_kept_as_it_is(text: str) -> None:
    assert texts(assembled(Answer(text), Answer("b"))) == [text, "b"]


def test_a_text_at_the_bound_is_kept_and_one_above_it_refuses_the_row() -> None:
    assert texts(assembled(Answer("a" * MAX_TEXT), Answer("b")))[0] == "a" * MAX_TEXT
    with pytest.raises(RowFault, match="above 100000") as caught:
        assembled(Answer("a" * (MAX_TEXT + 1)), Answer("b"))
    assert caught.value.reason is Reason.OVERSIZE


def test_the_number_of_answers_is_bounded() -> None:
    assert len(assembled(*[Answer("a")] * MAX_SAMPLES).samples) == MAX_SAMPLES
    with pytest.raises(RowFault) as caught:
        assembled(*[Answer("a")] * (MAX_SAMPLES + 1))
    assert caught.value.reason is Reason.TOO_MANY


@pytest.mark.parametrize(
    ("text", "reason"), [("\ud800", Reason.ENCODING), (7, Reason.BAD_VALUE), ({}, Reason.BAD_VALUE)]
)
def test_a_text_that_cannot_be_stored_refuses_the_row(text: Any, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        assembled(Answer("secret"), Answer(text))
    assert caught.value.reason is reason
    assert "secret" not in caught.value.detail


def test_reasons_of_several_kinds_are_too_few() -> None:
    rejected = assembled(Answer("a"), Answer(None), Answer("x", "tool_calls"))
    assert rejected.reason is Reason.TOO_FEW
    assert rejected.detail == "1 usable answers, below 2; left out: 1 empty, 1 tool_call"


ASKED = Question("2 + 2?")


def test_a_request_for_one_answer_can_be_grouped() -> None:
    for asked in (None, 1):
        record = assembled(Answer("4"), question=ASKED, asked=asked)
        assert texts(record) == ["4"] and record.group_key == ASKED.group_key("m")


def test_the_one_usable_answer_of_several_is_not_grouped() -> None:
    for rejected in (
        assembled(Answer("4"), Answer(None), question=ASKED),
        assembled(Answer("4"), question=ASKED, asked=5),
    ):
        assert isinstance(rejected, Rejected)
        assert rejected.prompt == '"2 + 2?"'  # but it can be asked again


def test_a_record_with_several_answers_has_no_group() -> None:
    assert assembled(Answer("4"), Answer("5"), question=ASKED).group_key is None


def test_one_answer_that_waits_for_its_question_is_left_to_whoever_joins_it() -> None:
    record = assembled(Answer("4"), join_key="q-1")
    assert record.join_key == "q-1" and record.group_key is None
    assert assembled(Answer(None), join_key="q-1").join_key == "q-1"
