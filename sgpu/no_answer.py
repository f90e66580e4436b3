"""Response sets without an answer: every text is empty or declines to answer.

Such sets agree perfectly, so a spectrum would rate them as the most trustworthy of all. The refusals are
exact texts, one per line of refusals.txt. "None", "unknown" and "unanswerable" are not among them, because
they are answers to some questions.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

NoAnswer = Literal["empty", "refusal"]

LONGEST = 300  # characters of a text that is compared with the list

_APOSTROPHE = re.compile("['\u2019\u02bc`]")
_NOT_A_WORD = re.compile(r"[\W_]+")


def no_answer(answers: Sequence[str | None]) -> NoAnswer | None:
    """Return why a response set of N answers holds no answer, or None if at least one of them is an answer.

    "empty": all texts are missing or blank. "refusal": the texts that are not blank all decline to answer.

    >>> no_answer(["I don't know.", "", "Sorry, I don\u2019t know"])
    'refusal'
    >>> no_answer(["I don't know.", "Lima"]) is None
    True
    """
    texts = {text for text in answers if text and not text.isspace()}
    if not texts:
        return "empty"
    refused = all(len(text) <= LONGEST and _plain(text) in _refusals() for text in texts)
    return "refusal" if refused else None


def describe(reason: NoAnswer, n: int) -> str:
    """Return a sentence fragment that says why a set of ``n`` answers was not scored."""
    return {
        "empty": f"all {n} answers are empty",
        "refusal": f"all {n} answers decline to answer or are empty",
    }[reason]


@cache
def list_sha256() -> str:
    """Return the hash of the list of refusals, for fingerprints of what depends on it."""
    return hashlib.sha256("\n".join(sorted(_refusals())).encode()).hexdigest()


@cache
def _refusals() -> frozenset[str]:
    lines = Path(__file__).with_name("refusals.txt").read_text("utf-8").splitlines()
    return frozenset(_plain(line) for line in lines)


def _plain(text: str) -> str:
    """Return the text in lower case with single spaces, without punctuation and apostrophes."""
    lowered = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_A_WORD.sub(" ", _APOSTROPHE.sub("", lowered)).strip()
