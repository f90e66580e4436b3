"""Agreement of N answers on content: on the words that the question did not bring.

Answers to "What is the capital of Peru?" share "capital" and "Peru" whether or not they agree; what they say
is the word "Lima". So the overlap of two answers is that of their content words: all words but stop words
and those of the question. Words of options that the question offers are kept, because there they are the
answer. Two numbers describe a response set: the mean overlap over its pairs, and the share of the answers
that hold the most common content word. Two more describe each answer: its mean overlap with the others, and
the share of the others that hold one of its words. Averages over pairs have the same mean for any N.

Needs no encoder and no training; use `sgpu.spectrum` where an answer is longer than a short fact, is worded
freely or is taken from its prompt: `why_no_agreement` names the last.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sgpu.no_answer import no_answer
from sgpu.words import words

Floats = NDArray[np.float64]
Decline = Literal["no question", "the answer is drawn from the prompt"]

VERSION = 1  # of the rules below, where code and not a number says them
ASKED_WORDS = 40  # at the end of a prompt: the question itself
LONGEST_PROMPT = 60  # words; a longer one brings the text that the answer is taken from
CONTEXT_WORDS = 10  # outside the question; as many may be a passage, fewer are an instruction
MOST_DRAWN = 0.9  # share of the answers' words that may stand in the prompt
GRAM = 2  # characters that stand for a word in scripts without spaces, where short answers have two

# Words that say nothing of what an answer is. "no" and "not" are not among them.
_STOP_WORDS = """
    about above after again all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just me more most my myself now of off on
    once only or other our ours out over own s same she should so some such t than that the their theirs them
    then there these they this those through to too under until up us very was we were what when where which
    while who whom whose why will with would you your yours a
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
# Han, kana, Thai, Lao, Tibetan, Myanmar and Khmer put no spaces between words.
_NO_SPACES = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_CLAUSE_END = re.compile(r"[?.!;:()]")
_SENTENCE_BREAK = re.compile(r"(?<=[.?!])\s+|\n+")


@dataclass(frozen=True)
class ContentAgreement:
    """How far N answers agree on content.

    ``overlap`` (0 to 1) is the mean over pairs, ``shared`` the share of the other answers that hold the most
    common content word. Of each answer ``centrality`` (N,) is its mean overlap with the others, ``support``
    (N,) the largest share of the others that hold one of its words; NaN for an answer that is missing. All
    are NaN where fewer than two answers are there.
    """

    overlap: float
    shared: float
    centrality: Floats
    support: Floats

    @property
    def chosen(self) -> int | None:
        """The place of the most central answer, the first of several; None where nothing is known."""
        return None if np.isnan(self.centrality).all() else int(np.nanargmax(self.centrality))


def content_agreement(
    answers: Sequence[str | None], question: str, choices: Sequence[str] = ()
) -> ContentAgreement:
    """Measure how far N ``answers`` to a ``question`` agree; None stands for one that is missing.

    ``choices`` are the options that the data set gives beside the question; those that the question's text
    lists are found in it. An answer without a content word, or that declines, agrees with nothing.

    >>> answers = ["The capital of Peru is Lima.", "Lima", "Cusco"]
    >>> found = content_agreement(answers, "What is the capital of Peru?")
    >>> round(found.overlap, 3), found.shared, found.chosen
    (0.333, 0.5, 0)

    Source: ours; Dice's and the overlap coefficient of word sets, cf. Lin et al. 2024 for means over pairs.
    """
    present = [i for i, text in enumerate(answers) if text is not None]
    centrality, support = np.full((2, len(answers)), np.nan)
    if len(present) < 2:
        return ContentAgreement(np.nan, np.nan, centrality, support)
    removed = asked_words(question, choices)
    contents = [content_words(answers[i] or "", removed) for i in present]
    overlaps, others = overlap_matrix(contents), len(present) - 1
    counts = Counter(chain.from_iterable(contents))
    centrality[present] = overlaps.sum(axis=1) / others
    support[present] = [max((counts[word] - 1 for word in own), default=0) / others for own in contents]
    return ContentAgreement(
        float(overlaps.sum() / (others * (others + 1))),
        max(max(counts.values(), default=0) - 1, 0) / others,
        centrality,
        support,
    )


def overlap_matrix(contents: Sequence[frozenset[str]]) -> Floats:
    """Return the (N, N) overlap coefficients |A & B| / min(|A|, |B|) of word sets; its diagonal is 0.

    An empty set overlaps with nothing.
    """
    overlaps = np.zeros((len(contents), len(contents)))
    for (i, one), (j, other) in combinations(enumerate(contents), 2):
        if one and other:
            overlaps[i, j] = overlaps[j, i] = len(one & other) / min(len(one), len(other))
    return overlaps


def content_words(answer: str, removed: frozenset[str]) -> frozenset[str]:
    """Return the words of an answer that are neither stop words nor ``removed``; none if it declines."""
    if no_answer([answer]):
        return frozenset()
    return frozenset(_tokens(answer)) - STOP_WORDS - removed


def asked_words(question: str, choices: Sequence[str] = (), last: int = ASKED_WORDS) -> frozenset[str]:
    """Return the ``last`` words that the question brings, without those of the options that it offers."""
    offered = chain(choices, offered_options(question))
    kept = frozenset(chain.from_iterable(map(_tokens, offered)))
    return frozenset(_tokens(question)[-last:]) - kept


def offered_options(question: str) -> list[str]:
    """Return the options of a question such as "Is it in Africa, the Americas or Asia?".

    Options lie between commas before and after "or". The first and the last of them run into the rest of
    the sentence, of which they are given as many words as the options between them have, or one.

    >>> offered_options("Is Fiji in Africa, the Americas or Asia?")
    ['africa', 'the Americas', 'asia']
    """
    for clause in _CLAUSE_END.split(question):
        listed, found, last = clause.rpartition(" or ")
        if found:
            first, *between = listed.rstrip(", ").split(",")
            width = max((len(words(option)) for option in between), default=1)
            ends = [words(first)[-width:], words(last)[:width]]
            return [" ".join(ends[0]), *(option.strip() for option in between), " ".join(ends[1])]
    return []


def find_agreement(
    answers: Sequence[str | None], question: str | None, choices: Sequence[str] = ()
) -> ContentAgreement | None:
    """Return `content_agreement` where it says something: None for fewer than two answers or if it declines.

    `why_no_agreement` says why it declines.
    """
    if not question or why_no_agreement(answers, question, choices):
        return None
    found = content_agreement(answers, question, choices)
    return None if found.chosen is None else found


def why_no_agreement(
    answers: Sequence[str | None], question: str | None, choices: Sequence[str] = ()
) -> Decline | None:
    """Return why agreement on content says nothing of these answers; None if it does.

    Without a question nothing can be removed. A prompt brings the text that the answers are taken from if it
    has more than `LONGEST_PROMPT` words, or if answers repeat words that stand beside the question: any word
    of a passage of `CONTEXT_WORDS` or more, or of less text if more than `MOST_DRAWN` of what the answers say
    is in the prompt. Answers that repeat the question itself are not drawn from it: they say nothing.
    """
    if not question or question.isspace():
        return "no question"
    said = [word for text in answers if text for word in _tokens(text) if word not in STOP_WORDS]
    passage, asked = _split_prompt(question)
    beside = frozenset(_tokens(passage)) - frozenset(_tokens(asked))
    prompt = asked_words(question, choices, LONGEST_PROMPT)
    drawn = len(words(question)) > LONGEST_PROMPT or (
        not beside.isdisjoint(said)
        and (
            len(words(passage)) >= CONTEXT_WORDS
            or sum(word in prompt for word in said) > MOST_DRAWN * len(said)
        )
    )
    return "the answer is drawn from the prompt" if drawn else None


def _split_prompt(prompt: str) -> tuple[str, str]:
    """Return the passage of a prompt and its question: each sentence that ends in "?", and the last one."""
    *before, last = _SENTENCE_BREAK.split(prompt.strip())
    asked = [sentence for sentence in before if sentence.endswith("?")]
    return " ".join(sentence for sentence in before if not sentence.endswith("?")), " ".join([*asked, last])


def rules_sha256() -> str:
    """Return a hash of the rules by which words are counted, for fingerprints of what depends on them."""
    bounds = (ASKED_WORDS, LONGEST_PROMPT, CONTEXT_WORDS, MOST_DRAWN, GRAM)
    return hashlib.sha256(repr((VERSION, bounds, sorted(STOP_WORDS))).encode()).hexdigest()


def _tokens(text: str) -> list[str]:
    """Return the words of a text; in scripts without spaces pairs of characters, as search engines do."""
    found: list[str] = []
    for word in words(text):
        if _NO_SPACES.search(word) and len(plain := unicodedata.normalize("NFC", word)) > GRAM:
            found += [plain[i : i + GRAM] for i in range(len(plain) - GRAM + 1)]
        else:
            found.append(word)
    return found
