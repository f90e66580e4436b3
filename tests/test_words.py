"""Words of texts are compared without case, accents and punctuation."""

from __future__ import annotations

import pytest

from sgpu.words import positions, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  The  Hague! ", ("hague",)),
        ("Côte d’Ivoire", ("cote", "d", "ivoire")),
        ("STRASSE", words("Straße")),
        ("Ærø", ("aero",)),
        ("1,234.5 km", ("1234.5", "km")),
        ("The", ("the",)),
        ("...", ()),
        ("ﬁ", ("fi",)),
    ],
)
def test_words(text: str, expected: tuple[str, ...]) -> None:
    assert words(text) == expected


def test_marks_that_are_vowels_are_kept() -> None:
    assert words("की") != words("का")


def test_positions_are_of_whole_sequences() -> None:
    assert positions(("a", "b"), ("a", "b", "a", "b", "c")) == [0, 2]
    assert positions((), ("a",)) == []
