"""What of an answered question is read: the tokens of its answers, and their row in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sgpu.engines.base import clean_answer
from sgpu.engines.prompts import RenderedPrompt
from sgpu.probes.states import token_index


@dataclass(frozen=True)
class AnswerTokens:
    """Which of an answer's tokens are read after the prompt, and where its states stand among them.

    -1 as a place is the last token of the prompt.
    """

    tokens: tuple[int, ...]
    last: int
    slt: int


def answer_tokens(
    token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], stop: Sequence[str]
) -> AnswerTokens | None:
    """None for an answer without any text: it has no last token.

    What was sampled ends in an end-of-sequence token, in a stop string, or where the length was used up.
    ``last`` is the last token that the cleaned answer needs; ``slt`` is `sgpu.probes.states`' second-last
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


@dataclass(frozen=True)
class AnsweredQuestion:
    """An answered prompt as it is read, and its place among those that were asked for."""

    index: int
    text: RenderedPrompt
    answers: list[AnswerTokens | None]

    @cached_property
    def distinct(self) -> list[AnswerTokens]:
        """Equal answers are read once."""
        return [answer for answer in dict.fromkeys(self.answers) if answer]

    @cached_property
    def n_tokens(self) -> int:
        """Of the prompt and its different answers."""
        return len(self.text.token_ids) + sum(len(answer.tokens) for answer in self.distinct)


PADDING, PROMPT = -1, 0  # owners of tokens; answers are numbered from 1


class PassRow:
    """The tokens of a question behind those that are read already: the rest of its prompt, then its answers.

    ``wanted`` are the places of the prompt's last token, of each answer's ``last`` and of each one's ``slt``.
    """

    def __init__(self, question: AnsweredQuestion, n_read: int) -> None:
        prompt = question.text.token_ids
        self.tokens = list(prompt[n_read:])
        self.positions = list(range(n_read, len(prompt)))
        self.owners = [PROMPT] * len(self.tokens)
        end = len(self.tokens) - 1
        last, slt = [], []
        for number, answer in enumerate(question.distinct, start=1):
            start = len(self.tokens)
            last.append(end if answer.last < 0 else start + answer.last)
            slt.append(end if answer.slt < 0 else start + answer.slt)
            self.tokens += answer.tokens
            self.positions += range(len(prompt), len(prompt) + len(answer.tokens))
            self.owners += [number] * len(answer.tokens)
        self.wanted = [end, *last, *slt]
