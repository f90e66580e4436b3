"""An engine that adds two numbers, more or less; the questions; a judge; and who says what means the same."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sgpu.datasets.base import DatasetCard, LoadRequest, Question, Source
from sgpu.engines.base import Answer, EngineConfig, Generation, Prompt, Sampling
from sgpu.entailment.base import AnswerPair, two_way
from sgpu.judges.base import Item, Vote
from sgpu.models.cards import ModelCard
from sgpu.models.weights import MadeWeights, PackagedFile


class Parrot:
    """Is right the less often, the larger the first number."""

    name = "parrot"

    def __init__(self, config: EngineConfig) -> None:
        self._model = config.model

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        return [self._generation(prompt, sampling.n) for prompt in prompts]

    def next_token_logprobs(self, prompts: Sequence[Prompt], candidates: Sequence[str]) -> list[list[float]]:
        return [[-1.0] * len(candidates) for _ in prompts]

    def close(self) -> None:
        pass

    def _generation(self, prompt: Prompt, n: int) -> Generation:
        text = prompt.messages[-1][1]
        first, second = (int(number) for number in re.findall(r"\d+", text)[-2:])
        chance = random.Random(prompt.seed)
        answers = []
        for _ in range(n):
            right = chance.random() > first / 60
            said = str(first + second + (0 if right else chance.randint(1, 9)))
            answers.append(Answer(said, said, (len(said),), (-0.1 if right else -2.0,), "stop"))
        return Generation(hashlib.sha256(text.encode()).hexdigest(), tuple(answers))


def load(request: LoadRequest) -> Source:
    questions = [
        Question(f"sum-{a}-{b}", f"What is {a} plus {b}?", (str(a + b),), f"sum-{a}-{b}")
        for a in range(60)
        for b in range(2)
    ]
    return Source("sums", "1.0", "CC0", "none", {"all": questions})


SUMS = DatasetCard(
    name="sums",
    title="Sums of two numbers",
    load=load,
    licence="CC0",
    citation="none",
    prompt="text-qa",
    pools={"all": 120},
    packages=("sgpu-house",),
)


def make(data: Path, folder: Path, say: Callable[[str], None]) -> None:
    (folder / "weights.txt").write_bytes(data.read_bytes())


TALLY = ModelCard(
    name="tally", source="tally", licence="CC0", memory_gib=0.0, engine="parrot",
    weights=MadeWeights(
        PackagedFile(
            "sgpu-house==1.0", "sgpu_house", "__init__.py",
            "521fc325809c0d0c86933923d10ab7058332a0aa56b0bdc3b775ad9e7e555b94",
        ),
        make, "a moment",
    ),
)  # fmt: skip


class ExactJudge:
    """Right is what a reference says letter by letter."""

    name = "exact"

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        return [Vote(item.answer in item.references) for item in items]


class SameText:
    """Answers entail each other that are the same letter by letter."""

    name = "same-text"
    reads_question = False

    def classify(self, pairs: Sequence[AnswerPair]) -> NDArray[np.float64]:
        return two_way(np.array([pair.premise == pair.hypothesis for pair in pairs], dtype=bool))
