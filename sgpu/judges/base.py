"""What a judge must do: say of each answer whether it means the same as a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sgpu.errors import MissingDependencyError
from sgpu.registry import Registry


@dataclass(frozen=True)
class Item:
    """One (question, references, answer) to be judged."""

    question: str
    references: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Vote:
    """A verdict: True correct, False wrong, None could not be judged (missing, never wrong).

    ``p_yes`` is P(yes) among the yes and no tokens, for judges that have one; ``mass`` is the
    probability that those tokens hold together, a quality flag. ``guarded``: the answer was
    nothing but words to the judge, or a control token in it was broken by a space. ``reason``: why
    the judge could not be asked.
    """

    correct: bool | None
    p_yes: float | None = None
    mass: float | None = None
    guarded: bool = False
    reason: str | None = None


class Judge(Protocol):
    """Built once per actor; ``judge`` must depend on the items only, so identical items are judged once.

    A judge that asks a language model has ``asks_model = True`` and takes the engine of its model card.
    """

    name: str

    def judge(self, items: Sequence[Item]) -> list[Vote]: ...


JUDGES = Registry(
    "judge",
    {
        "alias": "sgpu.judges.alias:AliasJudge",
        "numeric": "sgpu.judges.numeric:NumericJudge",
        "llm": "sgpu.judges.llm:LLMJudge",
        "vllm": "sgpu.judges.llm:LLMJudge",  # the same judge; the study names its engine
    },
    group="sgpu.judges",
)


def asks_model(judge: str) -> bool:
    """Whether a registered judge is built from the engine of a model card, which its class declares.

    Others are built from nothing. False for one whose package is missing, which is said where it is built.
    """
    try:
        return bool(getattr(JUDGES.get(judge), "asks_model", False))
    except MissingDependencyError:
        return False
