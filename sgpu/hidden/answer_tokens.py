"""Which of the stored tokens of an answer are read, and where its states stand among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sgpu.engines.clean import clean_answer
from sgpu.probes.positions import token_index


@dataclass(frozen=True)
class AnswerTokens:
    """What a forward pass reads after the prompt; -1 as a place is the last token of the prompt."""

    tokens: tuple[int, ...]
    last: int
    slt: int


def answer_tokens(
    token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], stop: Sequence[str]
) -> AnswerTokens | None:
    """None for an answer without any text: it has no last token.

    What was sampled ends in an end-of-sequence token, in a stop string, or where the length was used up.
    ``last`` is the last token that the cleaned answer needs; ``slt`` is `sgpu.probes.positions`' second-last
    generated token. ``decode`` leaves special tokens out.
    """
    text = clean_answer(decode(token_ids), stop)
    if not text:
        return None
    end = len(token_ids)
    while end > 1 and clean_answer(decode(token_ids[: end - 1]), stop) == text:
        end -= 1
    slt = token_index("slt", 1, len(token_ids)) - 1
    return AnswerTokens(tuple(token_ids[: max(end, slt + 1)]), end - 1, slt)
