"""A judge that asks a language model yes or no, and reads the answer from the next-token probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sgpu.engines.base import Engine, Prompt
from sgpu.errors import PromptError, StageError
from sgpu.judges.base import Item, Vote
from sgpu.judges.prompt import (
    addresses_only_the_judge,
    judge_prompt,
    marked_prompt,
    one_line,
    shows_nothing,
    without_tags,
)

# Models differ in which form they put first (SmolLM2: "No"); a form that is not one token counts nothing.
YES = ("yes", "Yes", "YES", " yes", " Yes", " YES")
NO = ("no", "No", "NO", " no", " No", " NO")
_MASS_ROUNDING = 0.02  # bfloat16 probabilities need not add up to 1 exactly


class YesNoReader:
    """Asks an engine for yes or no.

    ``min_mass`` is the probability that the yes and no tokens must hold together; below it the model wanted
    to say something else. Raises ValueError for one outside [0, 1].
    """

    def __init__(self, engine: Engine, min_mass: float) -> None:
        if not 0 <= min_mass <= 1:
            raise ValueError(f"min_mass is {min_mass}; it is a probability, so give a value in [0, 1]")
        self._engine, self._min_mass = engine, min_mass

    def ask(self, texts: Iterable[str]) -> dict[str, Vote]:
        """One vote for each different text; StageError if the probabilities add up to more than 1.

        Where the mass is too small to tell yes from no the vote is None. So is that of a text that cannot be
        rendered, which costs the others nothing.
        """
        unique = list(dict.fromkeys(texts))
        if not unique:
            return {}
        prompts = [Prompt(messages=(("user", text),), seed=0) for text in unique]
        try:
            rows = self._engine.next_token_logprobs(prompts, [*YES, *NO])
        except PromptError as error:  # nothing was asked: the others still are, together
            refused = {unique[index]: Vote(None, reason=why) for index, why in error.reasons.items()}
            return self.ask(text for text in unique if text not in refused) | refused
        return dict(zip(unique, map(self._read, rows), strict=True))

    def _read(self, logprobs: Sequence[float]) -> Vote:
        probabilities = [math.exp(value) for value in logprobs]
        yes, mass = sum(probabilities[: len(YES)]), sum(probabilities)
        if mass > 1 + _MASS_ROUNDING:
            raise StageError(
                f"the yes and no tokens hold {mass:.3f} of the probability, above 1. "
                f"The engine {self._engine.name!r} counts a token twice: give -inf to a repeated candidate."
            )
        if not mass > 0:  # nothing, or NaN
            return Vote(None, mass=0.0 if mass == 0 else None)
        p_yes = yes / mass
        return Vote(p_yes > 0.5 if mass >= self._min_mass else None, p_yes, mass)


class LLMJudge:
    """Votes True if P(yes) > 1/2 among the yes and no tokens of the engine's next-token distribution.

    ``min_mass`` is the probability that yes and no must hold together; below it the model wanted to say
    something else, the vote is None and ``p_yes`` and ``mass`` are still kept. An empty answer is wrong and
    an answer above ``max_answer_chars`` cannot be judged (None); neither is sent. Items that render to the
    same prompt are sent once.

    With ``guard`` the whole answer is sent between marks that it cannot forge, and an answer that is nothing
    but words to the judge is wrong without being sent: were it missing, a model could drop its wrong answers
    from the metric. The references are compared first, by the alias rule, but only to keep an answer from
    that verdict: what is right is the judge's to say, as in the paper. Without ``guard`` the prompt is the
    paper's.
    """

    name = "llm"
    asks_model = True

    def __init__(
        self, engine: Engine, min_mass: float = 0.01, max_answer_chars: int = 4000, guard: bool = True
    ) -> None:
        self._reader = YesNoReader(engine, min_mass)
        self._max_answer_chars = max_answer_chars
        self._guard = guard

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        """One vote per item, in order; StageError if the engine's probabilities add up to more than 1."""
        prepared = [self._prepared(item) for item in items]
        replies = self._reader.ask(text for text, _ in prepared if text)
        return [replace(replies[text], guarded=vote.guarded) if text else vote for text, vote in prepared]

    def _prepared(self, item: Item) -> tuple[str, Vote]:
        """The prompt, empty if there is nothing to ask; and the vote as far as it is known without asking."""
        if not any(reference.strip() for reference in item.references):
            return "", Vote(None)
        if not item.answer.strip():
            return "", Vote(False)
        if len(item.answer) > self._max_answer_chars:
            return "", Vote(None)
        if not self._guard:
            return judge_prompt(item.question, item.references, item.answer), Vote(None)
        if shows_nothing(item.answer):
            return "", Vote(False)
        if addresses_only_the_judge(item):
            return "", Vote(False, guarded=True)
        broken = without_tags(item.answer) != one_line(item.answer)
        return marked_prompt(item.question, item.references, item.answer), Vote(None, guarded=broken)
