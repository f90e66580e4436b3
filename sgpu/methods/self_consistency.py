"""Self-consistency: how many of the sampled answers are the same words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from sgpu.methods.base import Method, of_each

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# "-5" is not "5" and "3.14" is not "314": a sign, point or comma in front of a digit is part of a number.
_IN_NUMBER = re.compile(r"[-.,](?=\d)")


def normalise(answer: str) -> str:
    """The form in which two answers count as the same: NFKC, casefolded, single spaces.

    Punctuation outside numbers and the articles a, an, the are dropped, unless nothing else is left: "A"
    and "?" stay answers of their own.
    """
    folded = unicodedata.normalize("NFKC", answer).casefold()
    unpunctuated = "".join(
        character
        for i, character in enumerate(folded)
        if not unicodedata.category(character).startswith("P") or _IN_NUMBER.match(folded, i)
    )
    for candidate in (_ARTICLES.sub(" ", unpunctuated), unpunctuated, folded):
        if words := candidate.split():
            return " ".join(words)
    return ""


def self_consistency(answers: Sequence[str | None]) -> float:
    """Share of the N answers that equal the most frequent one after `normalise`; in [1/N, 1].

    Blank answers stay in N but never are the most frequent answer, so silence is not agreement. An
    answer that is None was withheld and is not counted. NaN if there is no answer but blank ones.

    Source: Wang et al. 2023, self-consistency (majority vote over samples).
    """
    normalised = [normalise(answer) for answer in answers if answer is not None]
    counts = Counter(normalised)
    del counts[""]
    return max(counts.values()) / len(normalised) if counts else float("nan")


METHOD = Method(
    name="self_consistency",
    title="Self-consistency",
    needs=frozenset({"answers"}),
    sign="confidence",
    compute=of_each("answers", self_consistency),
    reference="Wang et al. 2023",
    settings={"same_answer": "NFKC, casefold, no punctuation outside numbers, no articles, single spaces"},
)
