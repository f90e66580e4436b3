"""From answers to a record: what is left out, in which order, and when nothing can be scored."""

from __future__ import annotations

from typing import Any

import pytest

from sgpu.logs.records import MAX_SAMPLES, LogRecord, Reason, Rejected
from sgpu.logs.rows.answers import LoggedAnswer, Request, answers_of, assemble
from sgpu.logs.rows.fields import RowFault
from sgpu.logs.rows.question import LoggedQuestion
from sgpu.storage.json_lines import MAX_TEXT


def assembled(*answers: LoggedAnswer, **changes: Any) -> Any:
    return assemble(Request("r", 0, "m", None, answers, **changes))


def texts(record: LogRecord) -> list[str]:
    return [sample.text for sample in record.samples]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (LoggedAnswer(""), "empty"),
        (LoggedAnswer(" \n\t "), "empty"),
        (LoggedAnswer(None), "empty"),
        (LoggedAnswer("x", "content_filter"), "content_filter"),
        (LoggedAnswer("x", "SAFETY"), "content_filter"),
        (LoggedAnswer("x", "tool_calls"), "tool_call"),
        (LoggedAnswer("x", called_tool=True), "tool_call"),
        (LoggedAnswer("x", "refusal"), "refusal"),
        (LoggedAnswer(None, refused=True), "refusal"),
        (LoggedAnswer("x", "abort"), "failed_request"),
    ],
)
def test_an_answer_that_is_none_is_left_out_with_its_reason(answer: LoggedAnswer, reason: str) -> None:
    record = assembled(LoggedAnswer("a"), answer, LoggedAnswer("b"))
    assert texts(record) == ["a", "b"]
    assert record.dropped == (reason,)
    rejected = assembled(answer, answer)
    assert isinstance(rejected, Rejected) and rejected.reason == reason


def test_answers_cut_at_the_token_limit_are_kept_and_say_so() -> None:
    record = assembled(LoggedAnswer("a", "length"), LoggedAnswer("b", "stop"))
    assert [sample.finish_reason for sample in record.samples] == ["length", "stop"]


def test_answers_stand_in_the_order_of_their_index() -> None:
    record = assembled(LoggedAnswer("c", index=2), LoggedAnswer("a", index=0), LoggedAnswer("b", index=1))
    assert texts(record) == ["a", "b", "c"]


def test_without_index_or_with_one_index_twice_the_order_of_the_log_stands() -> None:
    assert texts(assembled(LoggedAnswer("b"), LoggedAnswer("a"))) == ["b", "a"]
    assert texts(assembled(LoggedAnswer("b", index=0), LoggedAnswer("a", index=0))) == ["b", "a"]


@pytest.mark.parametrize("text", ["a\x00b", "أزرق", "👩‍👩‍👧‍👦", "e\u0301", "\u202eabc"])
def test_a_text_is_kept_as_it_is(text: str) -> None:
    assert texts(assembled(LoggedAnswer(text), LoggedAnswer("b"))) == [text, "b"]


def test_a_text_at_the_bound_is_kept_and_one_above_it_refuses_the_row() -> None:
    assert texts(assembled(LoggedAnswer("a" * MAX_TEXT), LoggedAnswer("b")))[0] == "a" * MAX_TEXT
    with pytest.raises(RowFault, match="above 100000") as caught:
        assembled(LoggedAnswer("a" * (MAX_TEXT + 1)), LoggedAnswer("b"))
    assert caught.value.reason is Reason.OVERSIZE


def test_the_number_of_answers_is_bounded() -> None:
    assert len(assembled(*[LoggedAnswer("a")] * MAX_SAMPLES).samples) == MAX_SAMPLES
    with pytest.raises(RowFault) as caught:
        assembled(*[LoggedAnswer("a")] * (MAX_SAMPLES + 1))
    assert caught.value.reason is Reason.TOO_MANY


@pytest.mark.parametrize(
    ("text", "reason"), [("\ud800", Reason.ENCODING), (7, Reason.BAD_VALUE), ({}, Reason.BAD_VALUE)]
)
def test_a_text_that_cannot_be_stored_refuses_the_row(text: Any, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        assembled(LoggedAnswer("secret"), LoggedAnswer(text))
    assert caught.value.reason is reason
    assert "secret" not in caught.value.detail


def test_reasons_of_several_kinds_are_too_few() -> None:
    rejected = assembled(LoggedAnswer("a"), LoggedAnswer(None), LoggedAnswer("x", "tool_calls"))
    assert rejected.reason is Reason.TOO_FEW
    assert rejected.detail == "1 usable answers, below 2; left out: 1 empty, 1 tool_call"


ASKED = LoggedQuestion("2 + 2?")


def test_a_request_for_one_answer_can_be_grouped() -> None:
    for n_requested in (None, 1):
        record = assembled(LoggedAnswer("4"), question=ASKED, n_requested=n_requested)
        assert texts(record) == ["4"] and record.group_key == ASKED.group_key("m")


def test_the_one_usable_answer_of_several_is_not_grouped() -> None:
    for rejected in (
        assembled(LoggedAnswer("4"), LoggedAnswer(None), question=ASKED),
        assembled(LoggedAnswer("4"), question=ASKED, n_requested=5),
    ):
        assert isinstance(rejected, Rejected)
        assert rejected.prompt == '"2 + 2?"'  # but it can be asked again


def test_a_record_with_several_answers_has_no_group() -> None:
    assert assembled(LoggedAnswer("4"), LoggedAnswer("5"), question=ASKED).group_key is None


def test_one_answer_that_waits_for_its_question_is_left_to_whoever_joins_it() -> None:
    record = assembled(LoggedAnswer("4"), join_key="q-1")
    assert record.join_key == "q-1" and record.group_key is None
    assert assembled(LoggedAnswer(None), join_key="q-1").join_key == "q-1"


def text(content: str, kind: str = "text") -> dict[str, str]:
    return {"type": kind, "text": content}


CUT = {"output": [{"type": "message", "content": [text("Par", "output_text")]}]}
REFUSED = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
CALLED = {"content": [text("I look."), {"type": "tool_use", "name": "f"}]}
THOUGHT = {"type": "message", "role": "assistant", "stop_reason": "end_turn",
           "content": [{"type": "thinking", "thinking": "..."}, text("Paris")]}  # fmt: skip
CANDIDATES = [
    {"text": "a", "generation_info": {"finish_reason": "stop"}},
    {"text": "b", "generation_info": None},
]


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        ({"choices": [{"message": {"content": [text("Pa"), text("ris")]}}]}, [LoggedAnswer("Paris")]),
        (THOUGHT, [LoggedAnswer("Paris", "end_turn")]),
        (CALLED, [LoggedAnswer("I look.", called_tool=True)]),
        ({"output": [REFUSED]}, [LoggedAnswer("", refused=True)]),
        *(
            ({**CUT, "incomplete_details": {"reason": said}}, [LoggedAnswer("Par", end)])
            for said, end in (("max_output_tokens", "length"), ("content_filter", "content_filter"))
        ),
        ({"output": [{"type": "function_call", "name": "f"}]}, [LoggedAnswer("", called_tool=True)]),
        ({"generations": [CANDIDATES]}, [LoggedAnswer("a", "stop"), LoggedAnswer("b")]),
    ],
)
def test_answers_are_found_in_the_body_of_any_api(body: Any, answers: list[LoggedAnswer]) -> None:
    assert answers_of(body) == answers


def test_candidates_of_several_prompts_are_not_one_set() -> None:
    with pytest.raises(RowFault, match="answers 2 prompts, not 1"):
        answers_of({"generations": [[{"text": "a"}], [{"text": "b"}]]})


@pytest.mark.parametrize(("texts", "asked"), [(["a", "b"], 2), (["a"], 1), (["a"], None)])
def test_a_list_of_as_many_texts_as_were_asked_for_is_a_set(texts: list[str], asked: int | None) -> None:
    assert answers_of(texts, asked) == [LoggedAnswer(text) for text in texts]


@pytest.mark.parametrize("asked", [None, 1, 4])
def test_a_list_of_another_number_of_texts_may_be_pieces_of_one_answer(asked: int | None) -> None:
    with pytest.raises(RowFault, match="a list of 5 texts, but n") as caught:
        answers_of(["The", " capital", " is", " Lima", "."], asked)
    assert caught.value.reason is Reason.BAD_VALUE and "Lima" not in caught.value.detail


def test_choices_that_name_different_prompts_are_not_one_set() -> None:
    choices = [{"index": i, "text": "x", "prompt_token_ids": [1, i]} for i in range(2)]
    with pytest.raises(RowFault, match="different prompts"):
        answers_of({"choices": choices})
    same = [{**choice, "prompt_token_ids": [1, 2]} for choice in choices]
    assert len(answers_of({"choices": same})) == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, Reason.UNKNOWN_FORMAT),
        (7, Reason.UNKNOWN_FORMAT),
        ([], Reason.UNKNOWN_FORMAT),
        ([{"a": 1}], Reason.UNKNOWN_FORMAT),
        ({"result": "x"}, Reason.UNKNOWN_FORMAT),
        ({"choices": None}, Reason.MISSING_FIELD),
        ({"choices": [{"index": 0}]}, Reason.MISSING_FIELD),
        ({"choices": ["Paris"]}, Reason.BAD_VALUE),
        ({"choices": "Paris"}, Reason.BAD_VALUE),
        ({"generations": ["Paris"]}, Reason.BAD_VALUE),
        ({"content": [{"text": "Paris"}]}, Reason.BAD_VALUE),
    ],
)
def test_another_shape_is_refused_without_showing_it(body: Any, reason: Reason) -> None:
    with pytest.raises(RowFault) as caught:
        answers_of(body)
    assert caught.value.reason is reason
    assert "Paris" not in caught.value.detail
