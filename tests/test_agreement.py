"""Agreement on content: overlap of the words that the question did not bring, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sgpu.agreement import asked_words, content_agreement, offered_options, overlap_matrix, why_no_agreement

PERU = "What is the capital of Peru?"
PASSAGE = "Lima lies on the coast, approx. 3.5 km from Callao, and many people work there."


def test_numbers_are_those_counted_by_hand() -> None:
    # Content words: {lima, coast}, {lima}, {cusco}; pairs overlap by 1, 0 and 0.
    found = content_agreement(["Lima, on the coast of Peru", "It is LIMA.", "Cusco"], PERU)
    assert found.overlap == pytest.approx(1 / 3) and found.shared == 1 / 2
    np.testing.assert_allclose(found.centrality, [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(found.support, [1 / 2, 1 / 2, 0])
    assert found.chosen == 0


def test_coefficient_of_overlap_is_of_the_smaller_set() -> None:
    sets = [frozenset("ab"), frozenset("abcd"), frozenset("cx"), frozenset()]
    np.testing.assert_array_equal(
        overlap_matrix(sets), [[0, 1, 0, 0], [1, 0, 0.5, 0], [0, 0.5, 0, 0], [0] * 4]
    )


@pytest.mark.parametrize("answers", [["I don't know."] * 4, ["", "", ""], ["The capital of Peru"] * 3])
def test_answers_without_content_agree_with_nothing(answers: list[str]) -> None:
    found = content_agreement(answers, PERU)
    assert (found.overlap, found.shared, found.chosen) == (0, 0, 0)


def test_a_missing_answer_is_no_answer_of_another_kind() -> None:
    found = content_agreement(["Lima", None, "Lima"], PERU)
    assert (found.overlap, found.shared) == (1, 1)
    np.testing.assert_array_equal(found.centrality, [1, math.nan, 1])
    alone = content_agreement([None, "Lima"], PERU)
    assert math.isnan(alone.overlap) and math.isnan(alone.shared) and alone.chosen is None


def test_means_over_pairs_do_not_depend_on_the_number_of_answers() -> None:
    draw = np.random.default_rng(0)
    means = {
        n: np.mean(
            [
                content_agreement(list(draw.choice(["Lima", "Cusco", "Ica"], n)), PERU).overlap
                for _ in range(800)
            ]
        )
        for n in (3, 12)
    }
    assert means[3] == pytest.approx(1 / 3, abs=0.03) and means[12] == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (
            "Is Ethiopia in Africa, the Americas, Europe or Oceania?",
            ["africa", "the Americas", "Europe", "oceania"],
        ),
        ("Is it in New York, Los Angeles or San Francisco?", ["new york", "Los Angeles", "san francisco"]),
        ("Day or night?", ["day", "night"]),
        (PERU, []),
    ],
)
def test_words_of_options_are_not_removed(question: str, options: list[str]) -> None:
    assert offered_options(question) == options
    assert not asked_words(question) & {option.lower() for option in options}


def test_choices_of_the_data_set_are_not_removed() -> None:
    assert content_agreement(["Red", "red"], "Is the red or the green one larger?").overlap == 1
    assert content_agreement(["Red", "red"], "Name the colour of the red ball").overlap == 0
    assert content_agreement(["Red", "red"], "Name the colour of the red ball", ["red"]).overlap == 1


def test_scripts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    found = content_agreement(["東京です", "東京", "大阪"], "日本の首都は?")
    assert found.centrality[0] == found.centrality[1] == 1 / 2 and found.centrality[2] == 0


@pytest.mark.parametrize(
    ("answers", "question", "expected"),
    [
        (["Lima"], None, "no question"),
        (["Lima"], " ", "no question"),
        (["Lima", "Cusco"], PERU, None),
        (["Asia"] * 3, "Is Fiji in Africa, the Americas or Asia?", None),
        (["Lima", "Lima."], "Lima is the capital of Peru. " + PERU, "the answer is drawn from the prompt"),
        (["Quito", "Lima"], PASSAGE + " " + PERU, "the answer is drawn from the prompt"),
        (["Quito", "Peru is far"], PASSAGE + " " + PERU, None),  # no word of the passage alone
        (["Lima"], "Answer with the name of the city only, please. " + PERU, None),
        (["Quito"], "word " * 61, "the answer is drawn from the prompt"),
        (["", ""], PERU, None),
        (["The capital of Peru"] * 3, PERU, None),  # repeats the question: agrees on nothing
    ],
)
def test_answers_that_the_prompt_brings_are_recognised(
    answers: list[str], question: str | None, expected: str | None
) -> None:
    assert why_no_agreement(answers, question) == expected
