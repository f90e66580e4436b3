"""An engine whose probabilities are written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sgpu.engines.base import Generation, Prompt, Sampling


class WrittenEngine:
    """Gives each candidate the probability that ``table`` has for it, from the prompt's text."""

    name = "written"

    def __init__(self, table: Callable[[str], dict[str, float]]) -> None:
        self._table = table
        self.asked: list[str] = []

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        texts = [prompt.messages[0][1] for prompt in prompts]
        self.asked += texts
        tables = [self._table(text) for text in texts]
        return [[math.log(t[c]) if t.get(c) else -math.inf for c in candidates] for t in tables]

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        raise NotImplementedError

    def close(self) -> None:
        pass
