"""A judge without a model: the answer is right if its first sentence names one of the references.

Words are compared without case, accents, punctuation, articles and thousands separators.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from sgpu.judges.base import Item, Vote
from sgpu.words import positions, words

# A full stop ends a sentence only after a word of three letters or more: "St. Petersburg" and
# "Washington, D.C. is" go on. Spaces are taken whole (++), as each shorter run of them would be tried too.
_SENTENCE_END = re.compile(r"(?<=\w{3}[.!?])\s++(?=\W*[A-Z])|(?<=[!?])\s+")
_ACRONYM = re.compile(r"[A-Z]{2,4}")
_LIST_BREAK = re.compile(r"[,;/]|\band\b|\bor\b")
_NEGATIONS = frozenset({"not", "never", "isn", "wasn", "aren", "cannot"})
_NEGATION_REACH = 3
_LIST_ITEM_WORDS = 3
_MAX_LIST_ITEMS = 4


class AliasJudge:
    """Votes True if a reference occurs as whole words in the first sentence of the first line.

    Later sentences are not read, so that an answer which tries several things is held to its first one. An
    occurrence with "not", "never" or "isn't" up to three words before it does not count, and a sentence
    that lists more than four short items ("France, Spain, Italy, Malta or Greece") is a guess: wrong.
    References of two to four capitals ("UK", "USA") are compared with case, so that "US" is not "us".
    An empty answer is wrong: the model was asked and said nothing. None only if no reference has a word.

    Known limits: "France or Spain" passes for France, and a reference inside a longer name passes
    ("Guinea" in "Papua New Guinea"); a data set should leave such questions out.
    """

    name = "alias"

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        """One vote per item, in order."""
        return [Vote(_matches(item)) for item in items]


def most_named(answers: Sequence[str]) -> tuple[str, int]:
    """Return the answer that most of N >= 1 answers repeat or name, and how many do, itself included.

    An answer names another by the rule of `AliasJudge`, so "The capital is Lima." names "Lima". Of several
    such answers the most frequent text is returned, then the first.
    """
    counts = Counter(answers)
    judge = AliasJudge()

    def support(candidate: str) -> int:
        others = [text for text in counts if text != candidate]
        votes = judge.judge([Item("", (candidate,), text) for text in others])
        naming = (counts[text] for text, vote in zip(others, votes, strict=True) if vote.correct)
        return counts[candidate] + sum(naming)

    supported = {candidate: support(candidate) for candidate, _ in counts.most_common()}
    answer = max(supported, key=supported.__getitem__)
    return answer, supported[answer]


def first_sentence(text: str) -> str:
    """The first sentence of the first line that is not blank; empty for blank text."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return _SENTENCE_END.split(line.strip(), maxsplit=1)[0]


def is_list(sentence: str) -> bool:
    """Whether the sentence names more than four short things side by side."""
    parts = [words(part) for part in _LIST_BREAK.split(sentence)]
    return sum(0 < len(part) <= _LIST_ITEM_WORDS for part in parts) > _MAX_LIST_ITEMS


def _matches(item: Item) -> bool | None:
    usable = [reference for reference in item.references if words(reference)]
    if not usable:
        return None
    sentence = first_sentence(item.answer)
    if not sentence or is_list(sentence):
        return False
    return any(_names(sentence, reference) for reference in usable)


def _names(sentence: str, reference: str) -> bool:
    if _ACRONYM.fullmatch(reference):
        tokens = tuple(re.findall(r"\w+", sentence.replace(".", "")))
        wanted: tuple[str, ...] = (reference,)
    else:
        tokens, wanted = words(sentence), words(reference)
    before = (tokens[max(0, start - _NEGATION_REACH) : start] for start in positions(wanted, tokens))
    return any(_NEGATIONS.isdisjoint(map(str.casefold, near)) for near in before)
