"""An engine without a model for dry runs: few texts as answers, and votes that depend on the prompt alone."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling

WORDS = ("red", "blue", "yes", "no", "two", "a cup", "unanswerable", "#### 3000")


def chance_of(*texts: str) -> random.Random:
    """A generator that equal texts, and no others, share."""
    return random.Random(hashlib.sha256("\n".join(texts).encode()).hexdigest())


class EchoEngine:
    """Answers with one of a few words, more or less surely; as a judge it votes by the prompt alone."""

    name = "echo"

    def __init__(self, config: EngineConfig) -> None:
        self._model = config.model

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """See `sgpu.engines.base.Engine.sample`."""
        return [self._generation(prompt, sampling.n) for prompt in prompts]

    def _generation(self, prompt: Prompt, n: int) -> Generation:
        text, image = prompt.messages[-1][1], prompt.image or b""
        chance = chance_of(self._model, text, hashlib.sha256(image).hexdigest())
        mode, sure = chance.choice(WORDS), chance.random()
        answers = [mode if chance.random() < sure else chance.choice(WORDS) for _ in range(n)]
        return Generation(
            hashlib.sha256(text.encode()).hexdigest(),
            tuple(Answer(a, a, (len(a),), (-0.1 if a == mode else -2.0,), "stop") for a in answers),
        )

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        """See `sgpu.engines.base.Engine.next_token_logprobs`; the first half of the candidates says yes."""
        return [self._votes(prompt.messages[-1][1], len(candidates)) for prompt in prompts]

    def _votes(self, text: str, n: int) -> list[float]:
        right = chance_of(self._model, text).random() < 0.5
        votes = {0: 0.9 if right else 0.1, n // 2: 0.1 if right else 0.9}
        return [math.log(votes[i]) if i in votes else -math.inf for i in range(n)]

    def close(self) -> None:
        """See `sgpu.engines.base.Engine.close`."""
