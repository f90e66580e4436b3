"""Text of others is shown cut, with what would steer a terminal or reorder it made visible."""

from __future__ import annotations

import pytest

from sgpu.visible import SHOWN_CHARACTERS, visible


def test_long_text_is_cut_and_says_by_how_much() -> None:
    assert visible("x" * (SHOWN_CHARACTERS + 7)).endswith("… (and 7 more characters)")


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u2067", "\u2068", "\u2069"])
def test_marks_of_direction_are_shown(mark: str) -> None:
    assert visible(f"no{mark}sey") == f"no⟨U+{ord(mark):04X}⟩sey"
