"""A language model's yes or no, read from the probabilities of its next token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sgpu.engines.base import Engine, Prompt
from sgpu.errors import StageError

# Models differ in which form they put first (SmolLM2: "No"); a form that is not one token counts nothing.
YES = ("yes", "Yes", "YES", " yes", " Yes", " YES")
NO = ("no", "No", "NO", " no", " No", " NO")
_MASS_ROUNDING = 0.02  # bfloat16 probabilities need not add up to 1 exactly


class YesNo(NamedTuple):
    """P(yes) among the yes and no tokens, None where they hold nothing; ``mass``: what they hold together."""

    p_yes: float | None
    mass: float | None


def ask_yes_no(engine: Engine, texts: Sequence[str]) -> list[YesNo]:
    """One answer for each prompt text, in order; StageError if the probabilities add up to more than 1."""
    if not texts:
        return []
    prompts = [Prompt(messages=(("user", text),), seed=0) for text in texts]
    return [_read(row, engine.name) for row in engine.next_token_logprobs(prompts, [*YES, *NO])]


def _read(logprobs: Sequence[float], engine: str) -> YesNo:
    probabilities = [math.exp(value) for value in logprobs]
    yes, mass = sum(probabilities[: len(YES)]), sum(probabilities)
    if mass > 1 + _MASS_ROUNDING:
        raise StageError(
            f"the yes and no tokens hold {mass:.3f} of the probability, above 1. "
            f"The engine {engine!r} counts a token twice: give -inf to a repeated candidate."
        )
    if not mass > 0:  # nothing, or NaN
        return YesNo(None, 0.0 if mass == 0 else None)
    return YesNo(yes / mass, mass)
