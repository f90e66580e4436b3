"""One token a character; "." is the end-of-sequence token, which decoding leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sgpu.hidden.answer_tokens import AnswerTokens, answer_tokens


def decode(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids)).replace(".", "")


def read(sampled: str) -> tuple[str, int, int] | None:
    found = answer_tokens([ord(character) for character in sampled], decode, ["\n"])
    return found and (decode(found.tokens), found.last, found.slt)


@pytest.mark.parametrize(
    ("sampled", "tokens", "last", "slt"),
    [
        ("Rome.", "Rome", 3, 3),  # the last one generated is the end of the sequence
        ("Rome\n", "Rome", 3, 3),
        ("Rome", "Rome", 3, 2),  # cut off by the length
        ("Rome \n", "Rome ", 3, 4),
        ("  Rome\na", "  Rome\n", 5, 6),
        ("R.", "R", 0, 0),
        ("R", "R", 0, -1),  # the last token of the prompt
    ],
)
def test_what_is_read_ends_with_the_later_of_both_places(
    sampled: str, tokens: str, last: int, slt: int
) -> None:
    assert read(sampled) == (tokens, last, slt)


@pytest.mark.parametrize("sampled", ["", ".", " ", "\nRome", " \n."])
def test_an_answer_without_text_has_no_tokens(sampled: str) -> None:
    assert read(sampled) is None


def test_a_character_of_several_tokens_is_kept_whole() -> None:
    euro = list("€".encode())
    found = answer_tokens([*euro, ord("\n")], lambda ids: bytes(ids).decode(errors="replace"), ["\n"])
    assert found == AnswerTokens(tuple(euro), 2, 2)
