"""A judge that asks a language model yes or no, and reads the answer from the next-token probabilities."""

from __future__ import annotations

from collections.abc import Sequence

from sgpu.engines.base import Engine
from sgpu.judges.base import Item, Vote
from sgpu.judges.prompt import judge_prompt
from sgpu.judges.yes_no import YesNo, ask_yes_no


class LLMJudge:
    """Votes True if P(yes) > 1/2 among the yes and no tokens of the engine's next-token distribution.

    ``min_mass`` is the probability that yes and no must hold together; below it the model wanted to say
    something else, the vote is None and ``p_yes`` and ``mass`` are still kept. An empty answer is wrong and
    an answer above ``max_answer_chars`` cannot be judged (None); neither is sent. Items that render to the
    same prompt are sent once.
    """

    name = "llm"

    def __init__(self, engine: Engine, min_mass: float = 0.01, max_answer_chars: int = 4000) -> None:
        if not 0 <= min_mass <= 1:
            raise ValueError(f"min_mass is {min_mass}; it is a probability, so give a value in [0, 1]")
        self._engine = engine
        self._min_mass = min_mass
        self._max_answer_chars = max_answer_chars

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        """One vote per item, in order; StageError if the engine's probabilities add up to more than 1."""
        settled = [self._without_asking(item) for item in items]
        texts = [
            "" if vote else judge_prompt(item.question, item.references, item.answer)
            for item, vote in zip(items, settled, strict=True)
        ]
        unique = list(dict.fromkeys(text for text in texts if text))
        said = map(self._vote, ask_yes_no(self._engine, unique))
        votes = dict(zip(unique, said, strict=True))
        return [vote or votes[text] for vote, text in zip(settled, texts, strict=True)]

    def _without_asking(self, item: Item) -> Vote | None:
        if not any(reference.strip() for reference in item.references):
            return Vote(None)
        if not item.answer.strip():
            return Vote(False)
        return Vote(None) if len(item.answer) > self._max_answer_chars else None

    def _vote(self, said: YesNo) -> Vote:
        if said.p_yes is None or said.mass is None or said.mass < self._min_mass:
            return Vote(None, *said)
        return Vote(said.p_yes > 0.5, *said)
