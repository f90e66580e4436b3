"""Which token's hidden state a probe reads, as an index into prompt + generated tokens.

The two names were swapped in the published probe code for two years, and SLT was one token early. So they are
defined here once, by where the token stands and not by which step of generation computed its state.
"""

from __future__ import annotations

from typing import Literal, get_args

from sgpu.errors import DataError, UsageError
from sgpu.registry import unknown_name

Position = Literal["tbg", "slt"]


def token_index(position: Position, prompt_tokens: int, generated_tokens: int) -> int:
    """Index from 0 of the token whose state is read.

    "tbg", the token before generating, is the last token of the prompt. "slt" is the second-last generated
    token: the last one of the answer's text, because the last generated one ends the sequence.
    ``generated_tokens`` counts that end-of-sequence token, as stored responses do. Of an answer that was cut
    off it is the second-last token of the text. With one generated token the two positions are the same.

    Raises UsageError for another position, DataError without prompt or, for "slt", without answer.

    Source: Kossen et al. 2024.
    """
    if position not in get_args(Position):
        raise UsageError(unknown_name("position", position, list(get_args(Position))))
    if prompt_tokens < 1:
        raise DataError(f"the prompt has {prompt_tokens} tokens; at least 1 is needed")
    if position == "tbg":
        return prompt_tokens - 1
    if generated_tokens < 1:
        raise DataError(f"{generated_tokens} tokens were generated; position 'slt' needs at least 1")
    return prompt_tokens + generated_tokens - 2
