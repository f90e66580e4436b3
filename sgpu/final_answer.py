"""The final answer of a chain of thought, so that two ways of reasoning to one result compare equal."""

from __future__ import annotations

import re
from collections import deque

_MARK = "####"  # GSM8K writes the final answer after it
_CUE = re.compile(
    r"(?P<boxed>\\f?boxed[ ]{0,3}\{)|\banswers?[*_`\"' ]{0,4}(?:(?:is|are)\b|[:=])[\s:=*_`]{0,40}",
    re.IGNORECASE,
)
# Each candidate may cost a reading of the rest of the text, so only the last ones are looked at.
_CUES_READ = 4
_BRACE = re.compile(r"[{}]")

# A full stop after a title or a single capital does not end a sentence: "St. Ives", "J. K. Rowling".
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Jr|Sr|Mt|Ft|vs))(?<!\bMrs)(?!(?<=\b[Nn]o)\.\s+[0-9])"
    r"[.!?](?=[\s*_)\"'”’$\\]|$)"
)
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?<![0-9)] )[-+\u2212])?[$€£¥]?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|(?:[0-9]{1,9} )?[0-9]+/[0-9]+"
    r"|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)%?"
)
_LATEX = (
    (re.compile(r"\\[dt]?frac\{([^{}]{1,40})\}\{([^{}]{1,40})\}"), r"\1/\2"),
    (re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\{([^{}]{0,400})\}"), r"\1"),
    (re.compile(r"\^\{?\\circ\}?"), "°"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\f?boxed[ ]{0,3}\{?|\\(?:left|right)\b|\\[()\[\],;: ]"), " "),
    (re.compile(r"\\([$%#&_{}])"), r"\1"),
)
_MARKUP = " \t\r\n*_`\"'“”‘’#"
_PUNCTUATION = ".,;:!?…。"
_MATHS = re.compile(r"\$(?P<inside>[^$]*)\$|\$\$(?P<displayed>[^$]*)\$\$")


def final_answer(text: str) -> str | None:
    """What a chain of thought ends in; None if it names no answer and holds no number.

    That is the line after the last "####"; else what follows the last "answer is" or "answer:", or stands in
    the last \\boxed{}, to the end of the sentence; else the last number. Markup and trailing punctuation are
    left out; units, signs and currencies stay.
    """
    before, mark, after = text.rpartition(_MARK)
    if mark and (marked := _clean(_line(after.lstrip(), 0))):
        return marked
    rest = before if mark else text
    for cue in reversed(deque(_CUE.finditer(rest), maxlen=_CUES_READ)):
        if said := _clean(_boxed(rest, cue.end()) if cue["boxed"] else _sentence(rest, cue.end())):
            return said
    numbers = deque(_NUMBER.finditer(rest), maxlen=1)
    return numbers[0].group() if numbers else None


def _line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : len(text) if end < 0 else end]


def _sentence(text: str, start: int) -> str:
    line = _line(text, start)
    end = _SENTENCE_END.search(line)
    return line[: end.start()] if end else line


def _boxed(text: str, start: int) -> str:
    """From ``start`` to the brace that closes the box; to the end of the line if none does."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if not depth:
            return text[start : brace.start()]
    return _line(text, start)


def _clean(said: str) -> str:
    """Without markup around it and punctuation at its end, on one line; empty if that is all there is."""
    for pattern, replacement in _LATEX:
        said = pattern.sub(replacement, said)
    said = said.strip(_MARKUP).rstrip(_MARKUP + _PUNCTUATION)
    if maths := _MATHS.fullmatch(said):
        said = maths["inside"] or maths["displayed"] or ""
    said = " ".join(said.strip(_MARKUP).rstrip(_MARKUP + _PUNCTUATION).split())
    return said if any(char.isalnum() for char in said) else ""
