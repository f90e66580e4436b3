from __future__ import annotations

import json
from typing import Any

import pytest

from sgpu.logs.chat_messages import MAX_CHARACTERS, MAX_MESSAGES, UnusablePromptError, messages_of

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
