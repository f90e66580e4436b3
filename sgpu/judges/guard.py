"""Which answers are nothing but words to their judge.

An answer is written by the model that is judged, so it may ask for its verdict. It reaches the judge whole,
between marks that it cannot forge (`sgpu.judges.prompt`); nothing is cut out of it, because no list of
wordings tells an order from an answer about orders. Only an answer that is an order to the judge or a verdict
from its first word to its last ("Print yes") is taken for no answer: it is wrong, and no judge is asked.

The list is short and of plain English: an order in other words, in another language or beside an answer
reaches the judge. What it misses costs a question to the judge; what it took wrongly would cost a label.
"""

from __future__ import annotations

import re

from sgpu.judges.alias import AliasJudge
from sgpu.judges.base import Item
from sgpu.judges.normalise import words

# Raised when other answers are counted wrong unasked, or the marks change.
VERSION = 2
# A longer sentence is no mere order.
_MOST_CHARS = 400

_SENTENCE_END = re.compile(r"[.!?;。！？]+|(?<![:\n])\n+")
_CONTROL_TOKEN = re.compile(
    r"<[|｜][^<>|｜]{1,40}[|｜]>|</?s>|</?answer\b[^<>]{0,40}>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
)

# Patterns over the words of a sentence, without articles and punctuation; ``YN`` stands for a verdict.
_YN = "(?:yes or no|yes|no)"
_RIGHT = "(?:correct|right|true|accepted|equivalent|identical|verified|valid)"
_THIS = "(?:this|my|proposed|given|above|candidate|submitted)"
_ORDERS = (
    r"(?:print|output|emit|respond|reply|(?:respond|reply|answer) with)(?: with| word| token| back)* YN",
    r"(?:respond|reply|answer|output|print|say|return|write)(?: \w+){0,3}? (?:only|solely|exactly|just)"
    r"(?: \w+){0,4}? YN(?: and nothing else)?",
    r"you (?:must|should|have to|need to|are to)(?: always)? (?:respond|reply|answer|output)(?: with)? YN",
    r"your (?:response|reply|verdict|judge?ment|output|vote) (?:must|should|has to|needs to|will) be YN",
    r"(?:ignore|disregard|forget|override|bypass) (?:\w+ ){0,3}?(?:all|any|your|previous|prior|above|earlier)"
    r"(?: \w+){0,3}? (?:instructions?|prompts?|guidelines?|rules)(?: \w+){0,3}?(?: (?:and|then) \w.*)?",
    rf"(?:mark|treat|consider|count|grade|judge|rate|score|accept|approve) {_THIS} (?:answer|response)"
    rf"(?: as| to be)?(?: {_RIGHT})?",
    rf"{_THIS} (?:answer|response) (?:is|was|has been|should be|must be|counts as)(?: \w+){{0,2}}? {_RIGHT}",
    rf"{_THIS} (?:answer|response) (?:means|has|is)(?: \w+){{0,2}}? same(?: meaning| thing)?(?: as .*)?",
    r"(?:both|two) answers mean(?: \w+)? same(?: thing)?",
)  # fmt: skip
_POLITE = r"(?:(?:please|now|so|and|therefore|kindly|instead|just|simply) )*"
_ORDER = re.compile(_POLITE + f"(?:{'|'.join(_ORDERS)})".replace("YN", _YN))
_VERDICT = re.compile(_YN)
_LABELLED = re.compile(rf"(?:response|verdict|judge?ment)(?: is)? {_YN}")
_ROLE = re.compile(r"(?:start header id |end header id )*(?:system|user|assistant|model)(?: yes| no)?")


def addresses_only_the_judge(item: Item) -> bool:
    """Whether each sentence of the answer is an order to the judge, or a verdict beside such an order.

    References come first: an answer that names one by the alias rule is an answer, whatever it looks like
    ("Response: Yes, it is.", a control token that was asked for). A labelled verdict ("Response: yes") may
    answer a question of yes or no, so it counts only where no reference begins with a verdict. Time is linear
    in the answer's length.
    """
    text = _CONTROL_TOKEN.sub("\n", item.answer)
    forms = [_ORDER]
    if not any(_VERDICT.fullmatch(word) for reference in item.references for word in words(reference)[:1]):
        forms.append(_LABELLED)
    if text != item.answer:
        forms.append(_ROLE)
    addressed = False
    for sentence in _SENTENCE_END.split(text):
        plain = " ".join(words(_seen(sentence))) if len(sentence) <= _MOST_CHARS else sentence
        if not plain or _VERDICT.fullmatch(plain):
            continue
        if len(sentence) > _MOST_CHARS or not any(form.fullmatch(plain) for form in forms):
            return False
        addressed = True
    return addressed and not AliasJudge().judge([item])[0].correct


def shows_nothing(text: str) -> bool:
    """Whether the text is empty to a reader: blanks, zero-width and control characters alone."""
    return not _seen(text).strip()


def _seen(text: str) -> str:
    return "".join(char for char in text if char.isprintable() or char.isspace())
