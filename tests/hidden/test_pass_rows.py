"""Which tokens of an answer are read, and where those of a question stand in its row of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sgpu.engines.prompts import RenderedPrompt
from sgpu.hidden.pass_rows import AnsweredQuestion, AnswerTokens, PassRow, answer_tokens


def decode(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids)).replace(".", "")


def read(sampled: str) -> tuple[str, int, int] | None:
    found = answer_tokens([ord(character) for character in sampled], decode, ["\n"])
    return (decode(found.tokens), found.last, found.slt) if found else None


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


def test_answers_stand_behind_the_rest_of_their_prompt_and_each_begins_at_its_end() -> None:
    answers = [AnswerTokens((7, 8), 1, 0), None, AnswerTokens((9,), 0, -1), AnswerTokens((7, 8), 1, 0)]
    question = AnsweredQuestion(0, RenderedPrompt("?", (1, 2, 3), ""), answers)
    row = PassRow(question, n_read=1)
    assert row.tokens == [2, 3, 7, 8, 9]
    assert row.positions == [1, 2, 3, 4, 3]
    assert row.owners == [0, 0, 1, 1, 2]
    # The prompt's last token; the last tokens of both answers; their second-last ones.
    assert row.wanted == [1, 3, 4, 2, 1]
    assert question.n_tokens == 6
