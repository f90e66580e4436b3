"""Shapes of a provider's response, beyond those that the fixtures hold."""

from __future__ import annotations

from typing import Any

import pytest

from sgpu.logs.records import Reason
from sgpu.logs.rows.assembly import Answer
from sgpu.logs.rows.fault import RowFault
from sgpu.logs.rows.responses import answers_of


def test_content_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": "It is "}, {"type": "text", "text": "Paris."}]
    message = {"role": "assistant", "content": parts}
    assert answers_of({"choices": [{"message": message}]}) == [Answer("It is Paris.")]


def test_an_anthropic_message_is_one_answer() -> None:
    parts = [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": "Paris"}]
    body = {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": parts}
    assert answers_of(body) == [Answer("Paris", "end_turn")]


def test_a_call_of_a_tool_is_seen_in_parts_too() -> None:
    body = {"content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "f"}]}
    assert answers_of(body)[0].called_tool


def test_a_refusal_of_the_responses_api_is_one() -> None:
    message = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    assert answers_of({"output": [message]})[0].refused


def test_a_cut_or_filtered_response_says_so() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Par"}]}
    for said, end in (("max_output_tokens", "length"), ("content_filter", "content_filter")):
        body = {"output": [message], "incomplete_details": {"reason": said}}
        assert answers_of(body) == [Answer("Par", end)]


def test_a_call_that_waits_for_the_caller_is_a_tool_call() -> None:
    assert answers_of({"output": [{"type": "function_call", "name": "f"}]})[0].called_tool


def test_candidates_of_one_prompt_are_answers() -> None:
    found = answers_of({"generations": [[{"text": "a", "generation_info": {"finish_reason": "stop"}},
                                         {"text": "b", "generation_info": None}]]})  # fmt: skip
    assert found == [Answer("a", "stop"), Answer("b")]


def test_candidates_of_several_prompts_are_not_one_set() -> None:
    with pytest.raises(RowFault, match="answers 2 prompts, not 1"):
        answers_of({"generations": [[{"text": "a"}], [{"text": "b"}]]})


@pytest.mark.parametrize(("texts", "asked"), [(["a", "b"], 2), (["a"], 1), (["a"], None)])
def test_a_list_of_as_many_texts_as_were_asked_for_is_a_set(texts: list[str], asked: int | None) -> None:
    assert answers_of(texts, asked) == [Answer(text) for text in texts]


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
