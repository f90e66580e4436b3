"""Response sets to look at: which ones, and their answers grouped by identical text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgpu.report.look.numbers import known
from sgpu.report.study.data import Example

SHOWN_OF_A_KIND = 3


@dataclass(frozen=True)
class AnswerGroup:
    """Answers of identical text and vote; ``vote`` is "correct", "wrong" or "missing"."""

    text: str
    vote: str
    count: int


@dataclass(frozen=True)
class Kind:
    """A heading and the response sets under it; ``none`` says what it means that there are none."""

    title: str
    none: str
    examples: list[Example]


def answer_groups(example: Example) -> list[AnswerGroup]:
    """The answers grouped by text and vote, most frequent first, then in order of appearance."""
    counts: dict[tuple[str, str], int] = {}
    for i, answer in enumerate(example.answers):
        vote = example.votes[i] if i < len(example.votes) else None
        key = (answer, "missing" if vote is None else "correct" if vote else "wrong")
        counts[key] = counts.get(key, 0) + 1
    groups = [AnswerGroup(text, vote, count) for (text, vote), count in counts.items()]
    return sorted(groups, key=lambda group: -group.count)


def kinds(examples: Iterable[Example]) -> list[Kind]:
    """The safest correct, the most confident wrong, the doubted agreeing and the unsafe ones, a few of each.

    Sorted by probability, then question id. A response set without a probability is not shown.
    """
    scored = sorted(
        (example for example in examples if known(example.probability)),
        key=lambda example: (-(example.probability or 0.0), example.question_id),
    )
    confident = [example for example in scored if not example.unsafe and (example.probability or 0.0) >= 0.5]
    unsafe = [example for example in scored if example.unsafe]
    # Where taking the most frequent answer for the right one fails; those that agree most come first.
    doubted = sorted(
        (e for e in scored if e.label == 0 and (e.agreement or 0.0) > 0.5 and (e.probability or 0.0) < 0.5),
        key=lambda example: (-(example.agreement or 0.0), example.question_id),
    )
    return [
        Kind(
            "Safest and judged correct",
            "None was trusted (probability of one half or more, not unsafe) and judged correct.",
            [example for example in confident if example.label == 1][:SHOWN_OF_A_KIND],
        ),
        Kind(
            "Most confident, yet judged wrong",
            "None was trusted (probability of one half or more, not unsafe) and judged wrong.",
            [example for example in confident if example.label == 0][:SHOWN_OF_A_KIND],
        ),
        Kind(
            "Answers that agree, are judged wrong, and are doubted",
            "None agrees by more than half, is judged wrong, and has a probability below one half.",
            doubted[:SHOWN_OF_A_KIND],
        ),
        Kind("Unsafe", "No response set was flagged unsafe.", unsafe[:SHOWN_OF_A_KIND]),
    ]
