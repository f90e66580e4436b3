"""Which single answers belong together, and which never do."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from sgpu.logs.rows.question import (
    MAX_CHARACTERS,
    MAX_MESSAGES,
    LoggedQuestion,
    UnusablePromptError,
    canonical,
    last_user_text,
    messages_of,
    question_of_body,
    several_questions,
)

MESSAGES = [{"role": "user", "content": "2 + 2?"}]
ASKED = LoggedQuestion(MESSAGES, {"temperature": 1.0, "n": 1}, images=("a", "b"))


@pytest.mark.parametrize(
    "other",
    [
        LoggedQuestion([{"content": "2 + 2?", "role": "user"}], {"temperature": 1.0}, images=("a", "b")),
        LoggedQuestion(MESSAGES, {"temperature": 1.0, "seed": 7, "n": None}, images=("b", "a")),
        LoggedQuestion(MESSAGES, {"temperature": 1.0, "top_p": None}, images=("a", "b")),
    ],
)
def test_order_of_keys_seed_count_and_nulls_do_not_part_a_group(other: LoggedQuestion) -> None:
    assert other.group_key("m") == ASKED.group_key("m")


@pytest.mark.parametrize(
    "other",
    [
        LoggedQuestion(MESSAGES, {"temperature": 0.5}, images=("a", "b")),
        LoggedQuestion(MESSAGES, {"temperature": 1.0}, images=("a",)),
        LoggedQuestion([{"role": "user", "content": "2 + 3?"}], {"temperature": 1.0}, images=("a", "b")),
        LoggedQuestion("2 + 2?", {"temperature": 1.0}, images=("a", "b")),
    ],
)
def test_other_settings_images_or_questions_are_another_group(other: LoggedQuestion) -> None:
    assert other.group_key("m") != ASKED.group_key("m")


def test_models_never_share_a_group() -> None:
    for question in (ASKED, LoggedQuestion(group_id="g")):
        assert question.group_key("m") != question.group_key("n")


def test_a_group_id_goes_before_the_question() -> None:
    named = LoggedQuestion(MESSAGES, group_id="g")
    assert named.group_key("m") == LoggedQuestion("another", group_id="g").group_key("m")
    assert named.group_key("m") != LoggedQuestion(MESSAGES).group_key("m")


@pytest.mark.parametrize("content", [None, "", []])
def test_without_question_and_group_id_there_is_no_group(content: Any) -> None:
    assert LoggedQuestion(content).group_key("m") is None
    assert LoggedQuestion(content).sha256 is None


def test_the_fingerprint_is_sha256_of_sorted_json() -> None:
    text = json.dumps(MESSAGES, sort_keys=True, separators=(",", ":"))
    assert LoggedQuestion(MESSAGES).sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_question_with_images_elsewhere_cannot_be_asked_again() -> None:
    assert LoggedQuestion(MESSAGES).json == canonical(MESSAGES)
    assert ASKED.json is None
    assert LoggedQuestion({"question": "x"}, whole=False).json is None


def test_half_surrogates_and_values_of_parquet_have_a_canonical_form() -> None:
    assert canonical({"b": "\ud800", "a": b"x"}).isascii()


def test_an_openai_request_gives_its_question() -> None:
    body = {"model": "m", "messages": MESSAGES, "seed": 3, "temperature": 0.7, "user": "u", "n": 1}
    assert question_of_body(body) == LoggedQuestion(MESSAGES, {"temperature": 0.7})
    assert question_of_body({"prompt": "2 + 2?"}).content == "2 + 2?"


REQUEST = {"model": "m", "input": "yes, go on", "temperature": 0.7}


def key_of(body: dict[str, Any]) -> str | None:
    return question_of_body(body).group_key("m")


@pytest.mark.parametrize(
    "added",
    [
        {"previous_response_id": "resp_A"},
        {"prompt": {"id": "pmpt_1", "version": "2"}},
        {"text": {"format": {"type": "json_schema"}}},
        {"reasoning": {"effort": "high"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"functions": [{"name": "f"}]},
        {"guided_choice": ["yes", "no"]},
        {"a_setting_of_next_year": 1},
    ],
)
def test_whatever_else_a_request_says_is_another_group(added: dict[str, Any]) -> None:
    assert key_of({**REQUEST, **added}) != key_of(REQUEST)


@pytest.mark.parametrize("key", ["seed", "user", "metadata", "stream", "store", "service_tier", "request_id"])
def test_what_changes_no_answer_does_not_part_a_group(key: str) -> None:
    assert key_of({**REQUEST, key: {"a": "b"}}) == key_of(REQUEST)


def test_another_input_of_one_template_is_another_question() -> None:
    template = {"prompt": {"id": "pmpt_1"}}
    peru, everest = ({**REQUEST, **template, "input": text} for text in ("Capital of Peru?", "How tall?"))
    assert key_of(peru) != key_of(everest)
    assert question_of_body(peru).sha256 != question_of_body(everest).sha256


def test_answers_in_a_conversation_that_the_server_keeps_are_never_one_group() -> None:
    assert key_of({**REQUEST, "conversation": "conv_9"}) is None
    assert key_of({**REQUEST, "conversation": "conv_9", "metadata": {"group_id": "g"}}) is not None


@pytest.mark.parametrize("key", ["previous_response_id", "conversation", "instructions", "suffix"])
def test_what_was_asked_within_a_context_cannot_be_asked_again_without_it(key: str) -> None:
    assert question_of_body(REQUEST).json is not None
    assert question_of_body({**REQUEST, key: "x"}).json is None


def test_an_argument_named_conversation_is_what_was_said_before() -> None:
    assert key_of({"input": "yes, go on", "conversation": ["Shall I go on?"]}) is not None


def test_an_argument_named_user_may_be_what_the_user_said() -> None:
    first, second = ({"prompt": "Be brief.", "user": text} for text in ("Capital of Peru?", "How tall?"))
    assert key_of(first) != key_of(second)


def test_keys_of_requests_that_hold_nothing_new_have_stayed() -> None:
    body = {"model": "m", "messages": MESSAGES, "temperature": 0.7, "seed": 3, "tools": None}
    assert key_of(body) == "61370599ccecb0e0282ad7004a5bff06b69718d21ae7ab0f05069b20624eed90"


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [[1, 2], [3]]},
        {"prompts": ["a", "b"]},
        {"messages": [MESSAGES, MESSAGES]},
    ],
)
def test_a_list_of_prompts_is_several_questions(body: dict[str, Any]) -> None:
    assert several_questions(body) == "the request asks 2 questions, not 1"


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [1, 2]},
        {"prompt": '["a", "b"]'},
        {"prompt": ["a"]},
        {"prompt": MESSAGES * 2},
        {"messages": MESSAGES * 2},
        {"messages": [["system", "Be brief."], ["user", "2 + 2?"]]},
        {"messages": ["Hello", "Hello, how can I help?"]},
    ],
)
def test_tokens_and_turns_are_one_question(body: dict[str, Any]) -> None:
    assert several_questions(body) is None


SECRET = "the patient's name"


def test_a_text_is_asked_as_the_user() -> None:
    assert messages_of(json.dumps("Capital of Peru?")) == [{"role": "user", "content": "Capital of Peru?"}]


def test_messages_keep_their_roles_and_order() -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Peru?"},
        {"role": "assistant", "content": "Lima"},
        {"role": "user", "content": "Sure?", "name": "ann"},
    ]
    assert [(one["role"], one["content"]) for one in messages_of(json.dumps(turns))] == [
        (one["role"], one["content"]) for one in turns
    ]


def test_parts_of_text_become_one_text() -> None:
    parts = [{"type": "text", "text": "Capital "}, {"type": "text", "text": "of Peru?"}]
    assert messages_of(json.dumps([{"role": "user", "content": parts}]))[0]["content"] == "Capital of Peru?"


SAID = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        ("Who?", "Who?"),
        ([*SAID, {"role": "user", "content": "Sure?"}], "Sure?"),
        ([{"role": "system", "content": "Be brief."}, *SAID], "Who?"),
        ([*SAID[1:]], None),
        ([{"role": "user", "content": ""}], None),
        ([*SAID, {"role": "tool", "content": "42"}], None),
        ([*SAID, {"role": "function", "content": "42"}], None),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "i"}]}], None),
    ],
)
def test_the_question_is_what_the_user_asked_last(prompt: object, question: str | None) -> None:
    assert last_user_text(json.dumps(prompt)) == question


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            json.dumps([{"role": "user", "content": [{"type": "image_url", "image_url": SECRET}]}]),
            "than text",
        ),
        (json.dumps([{"role": "user", "content": [{"type": "text", "text": 3}]}]), "than text"),
        (json.dumps([{"role": "user", "content": []}]), "than text"),
        (json.dumps([{"role": "user", "content": None}]), "than text"),
        (json.dumps([{"role": "assistant", "content": SECRET, "tool_calls": [{}]}]), "than text"),
        (json.dumps([{"role": "tool", "content": SECRET}]), "none of the roles"),
        (json.dumps([{"role": ["user"], "content": SECRET}]), "none of the roles"),
        (json.dumps([SECRET]), "none of the roles"),
        (json.dumps([]), "neither text nor"),
        (json.dumps({"text": SECRET}), "neither text nor"),
        (SECRET, "not JSON"),
        ("[" * 100_000, "not JSON"),
        (json.dumps(f"{SECRET}\ud800"), "surrogate"),
        (json.dumps(SECRET + "x" * MAX_CHARACTERS), "characters, above"),
        (json.dumps([{"role": "user", "content": SECRET}] * (MAX_MESSAGES + 1)), "messages, above"),
    ],
)
def test_a_question_that_cannot_be_sent_is_refused_without_showing_it(prompt: Any, message: str) -> None:
    with pytest.raises(UnusablePromptError, match=message) as caught:
        messages_of(prompt)
    assert SECRET not in str(caught.value)
