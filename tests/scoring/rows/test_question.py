"""Which single answers belong together, and which never do."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from sgpu.scoring.rows.question import Question, canonical, question_of_body

MESSAGES = [{"role": "user", "content": "2 + 2?"}]
ASKED = Question(MESSAGES, {"temperature": 1.0, "n": 1}, images=("a", "b"))


@pytest.mark.parametrize(
    "other",
    [
        Question([{"content": "2 + 2?", "role": "user"}], {"temperature": 1.0}, images=("a", "b")),
        Question(MESSAGES, {"temperature": 1.0, "seed": 7, "n": None}, images=("b", "a")),
        Question(MESSAGES, {"temperature": 1.0, "top_p": None}, images=("a", "b")),
    ],
)
def test_order_of_keys_seed_count_and_nulls_do_not_part_a_group(other: Question) -> None:
    assert other.group_key("m") == ASKED.group_key("m")


@pytest.mark.parametrize(
    "other",
    [
        Question(MESSAGES, {"temperature": 0.5}, images=("a", "b")),
        Question(MESSAGES, {"temperature": 1.0}, images=("a",)),
        Question([{"role": "user", "content": "2 + 3?"}], {"temperature": 1.0}, images=("a", "b")),
        Question("2 + 2?", {"temperature": 1.0}, images=("a", "b")),
    ],
)
def test_other_settings_images_or_questions_are_another_group(other: Question) -> None:
    assert other.group_key("m") != ASKED.group_key("m")


def test_models_never_share_a_group() -> None:
    for question in (ASKED, Question(group_id="g")):
        assert question.group_key("m") != question.group_key("n")


def test_a_group_id_goes_before_the_question() -> None:
    named = Question(MESSAGES, group_id="g")
    assert named.group_key("m") == Question("another", group_id="g").group_key("m")
    assert named.group_key("m") != Question(MESSAGES).group_key("m")


@pytest.mark.parametrize("content", [None, "", []])
def test_without_question_and_group_id_there_is_no_group(content: Any) -> None:
    assert Question(content).group_key("m") is None
    assert Question(content).sha256 is None


def test_the_fingerprint_is_sha256_of_sorted_json() -> None:
    text = json.dumps(MESSAGES, sort_keys=True, separators=(",", ":"))
    assert Question(MESSAGES).sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_question_with_images_elsewhere_cannot_be_asked_again() -> None:
    assert Question(MESSAGES).json == canonical(MESSAGES)
    assert ASKED.json is None
    assert Question({"question": "x"}, whole=False).json is None


def test_half_surrogates_and_values_of_parquet_have_a_canonical_form() -> None:
    assert canonical({"b": "\ud800", "a": b"x"}).isascii()


def test_an_openai_request_gives_its_question() -> None:
    body = {"model": "m", "messages": MESSAGES, "seed": 3, "temperature": 0.7, "user": "u", "n": 1}
    assert question_of_body(body) == Question(MESSAGES, {"temperature": 0.7})
    assert question_of_body({"prompt": "2 + 2?"}).content == "2 + 2?"
