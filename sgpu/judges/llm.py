"""A judge that asks a language model yes or no, and reads the answer from the next-token probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgpu.engines.base import Engine
from sgpu.judges.base import Item, Vote
from sgpu.judges.guard import addresses_only_the_judge, shows_nothing
from sgpu.judges.prompt import judge_prompt, marked_prompt, one_line, without_tags
from sgpu.judges.yes_no import YesNo, ask_yes_no


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

    def __init__(
        self, engine: Engine, min_mass: float = 0.01, max_answer_chars: int = 4000, guard: bool = True
    ) -> None:
        if not 0 <= min_mass <= 1:
            raise ValueError(f"min_mass is {min_mass}; it is a probability, so give a value in [0, 1]")
        self._engine = engine
        self._min_mass = min_mass
        self._max_answer_chars = max_answer_chars
        self._guard = guard

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        """One vote per item, in order; StageError if the engine's probabilities add up to more than 1."""
        prepared = [self._prepared(item) for item in items]
        unique = list(dict.fromkeys(text for text, _ in prepared if text))
        said = map(self._vote, ask_yes_no(self._engine, unique))
        votes = dict(zip(unique, said, strict=True))
        return [replace(votes[text], guarded=vote.guarded) if text else vote for text, vote in prepared]

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

    def _vote(self, said: YesNo) -> Vote:
        if said.p_yes is None or said.mass is None or said.mass < self._min_mass:
            return Vote(None, *said)
        return Vote(said.p_yes > 0.5, *said)
