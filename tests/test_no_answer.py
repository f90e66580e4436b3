"""What counts as no answer: exact refusals and empty texts, and nothing that somebody could mean."""

from __future__ import annotations

from pathlib import Path

import pytest

import sgpu.no_answer
from sgpu.no_answer import no_answer

REFUSALS = Path(sgpu.no_answer.__file__).with_name("refusals.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("text", REFUSALS)
def test_case_punctuation_and_the_kind_of_apostrophe_do_not_matter(text: str) -> None:
    typographic = text.upper().replace("'", "\u2019").rstrip(".") + "!"
    assert no_answer([text, typographic, f"  {text}\n"]) == "refusal"


@pytest.mark.parametrize(
    "text",
    ["None", "0", "unknown", "unanswerable", "N/A", "Nothing Else Matters", "Unknown Pleasures", "No", "?",
     "I don't know, but probably Lima", "I Know What You Did Last Summer"],
)  # fmt: skip
def test_what_may_be_an_answer_is_one(text: str) -> None:
    assert no_answer([text] * 3) is None


def test_one_answer_among_refusals_is_an_answer() -> None:
    assert no_answer(["I don't know.", "", "Lima"]) is None


def test_missing_and_blank_texts_are_empty() -> None:
    assert no_answer([None, "", " \n"]) == "empty"
