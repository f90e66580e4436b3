"""How many votes of a language-model judge an answer can flip, with the paper's prompt and with the guard.

Run it with `python -m bench judge_injection`. The judge is SmolLM2 135M, which knows little and can be led:
the counts compare the two prompts with each other, say nothing of large judges, and hold no bound.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sgpu.engines.transformers import TransformersEngine
from sgpu.judges.base import Item
from sgpu.judges.llm import LLMJudge
from sgpu.judges.prompt import addresses_only_the_judge
from sgpu.study.models import engine_config, model_card
from sgpu.study.resolve import resolve
from tests.judges.adversarial import FOR_NO, FOR_YES, QUESTIONS
from tests.judges.cases import attacks, harmless

MODEL = "smollm2-135m-instruct"


def run() -> list[dict[str, Any]]:
    """Votes flipped by attacks beside an answer and by attacks alone, and harmless answers left whole."""
    engine = TransformersEngine(engine_config(model_card(MODEL), resolve("cpu")))
    plain, guarded = LLMJudge(engine, min_mass=0, guard=False), LLMJudge(engine, min_mass=0)
    beside, alone = attacked_pairs(), bare_attacks()
    rows = [
        _row("votes flipped by an attack beside the answer", flips(guarded, beside), flips(plain, beside),
             f"{len(beside)} answers"),
        _row("attacks alone that are judged right", rights(guarded, alone), rights(plain, alone),
             f"{len(alone)} answers, {sum(map(addresses_only_the_judge, alone))} of them wrong unasked"),
    ]  # fmt: skip
    engine.close()
    items = harmless()
    whole = sum(not addresses_only_the_judge(item) for item in items)
    rows.append(
        {
            "name": "harmless answers that reach the judge whole",
            "ours": float(whole),
            "baseline": float(len(items)),
            "ratio": whole / len(items),
            "bound": 1.0,
            "unit": "answers",
            "note": "of questions about tags, verdicts, orders and labels",
        }
    )
    return rows


def _row(name: str, guarded: int, plain: int, note: str) -> dict[str, Any]:
    return {
        "name": name,
        "ours": float(guarded),
        "baseline": float(plain),
        "ratio": plain / max(guarded, 1),
        "bound": None,
        "unit": "votes",
        "note": f"{note}, {MODEL} (a small model); baseline: the paper's prompt",
    }


def attacked_pairs() -> list[tuple[Item, Item]]:
    """(clean, attacked): wrong answers that ask for yes and right ones that ask for no, from one seed."""
    draw = random.Random(0)
    sides = [
        (question, question.wrong, attack) for attack in attacks() for question in draw.sample(QUESTIONS, 2)
    ]
    sides += [
        (question, question.right, attack) for attack in FOR_NO for question in draw.sample(QUESTIONS, 2)
    ]
    pairs = []
    for question, (short, _), attack in sides:
        text = draw.choice([f"{short}. {attack}", f"{short}\n{attack}", f"{attack}\n{short}"])
        clean, attacked = (Item(question.question, question.references, said) for said in (short, text))
        pairs.append((clean, attacked))
    return pairs


def bare_attacks() -> list[Item]:
    """Answers that are an attack and nothing else, to a question that yes or no does not answer."""
    return [Item(QUESTIONS[0].question, QUESTIONS[0].references, attack) for attack in (*attacks(), *FOR_YES)]


def flips(judge: LLMJudge, pairs: Sequence[tuple[Item, Item]]) -> int:
    """How many attacked answers got another vote than the clean one; a missing vote is another one, too."""
    votes = judge.judge([item for pair in pairs for item in pair])
    return sum(a.correct is not b.correct for a, b in zip(votes[::2], votes[1::2], strict=True))


def rights(judge: LLMJudge, items: Sequence[Item]) -> int:
    """How many of the answers, of which none is right, are judged right."""
    return sum(vote.correct is True for vote in judge.judge(items))
