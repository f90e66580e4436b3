"""The final answer of a chain of thought, so that two ways of reasoning to one result compare equal."""

from __future__ import annotations

import re
from collections import deque
from itertools import islice

_MARK = "####"  # GSM8K writes the final answer after it
_CUE = re.compile(
    r"(?P<boxed>\\f?boxed\s{0,3}\{)|\banswers?[*_`\"' ]{0,4}(?:(?:is|are)\b|[:=])[\s:=*_`]{0,40}", re.IGNORECASE
)
# Each candidate may cost a reading of the rest of the text, so that only the last ones are looked at.
_CUES_READ = 4

# A full stop after these, or after one capital letter, does not end a sentence: "St. Ives", "J. K. Rowling".
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Jr|Sr|Mt|Ft|vs))(?<!\bMrs)(?!(?<=\b[Nn]o)\.\s+[0-9])[.!?](?=[\s*_)\"'$]|$)"
)
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?<![0-9)][ ])[-+\u2212])?[$€£¥]?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+|/[0-9]+)?|\.[0-9]+)%?"
)
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]{1,40})\}\{([^{}]{1,40})\}")
_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\{([^{}]*)\}")
_LATEX = (
    (re.compile(r"\\boxed|\\[()\[\]]|\\[,!;: ]|\\left\b|\\right\b"), " "),
    (re.compile(r"\^\{?\\circ\}?"), "°"),
    (re.compile(r"\\([$%#&_{}])"), r"\1"),
    (re.compile(r"\{,\}"), ","),
)
_SURROUNDING = " \t\r\n*_`\"'“”‘’"
_TRAILING = ".,;:!?…。"


def final_answer(text: str) -> str | None:
    """What the chain of thought ends in; None if it names no answer and holds no number.

    The line after the last "####"; else what follows the last "answer is", "answer:" or stands in the last
    \\boxed{}, to the end of its sentence; else the last number. Trailing punctuation and markup are left out,
    units, signs and currencies stay.
    """
    before, mark, after = text.rpartition(_MARK)
    if mark and (found := _clean(_first_line(after))):
        return found
    rest = before if mark else text
    cues: deque[re.Match[str]] = deque(_CUE.finditer(rest), maxlen=_CUES_READ)
    for cue in reversed(cues):
        if found := _clean(_boxed(rest, cue.end()) if cue["boxed"] else _sentence(rest, cue.end())):
            return found
    return _last_number(rest)


def _first_line(text: str) -> str:
    return text.lstrip().partition("\n")[0]


def _sentence(text: str, start: int) -> str:
    """From ``start`` to the end of the sentence or of the line."""
    line_end = text.find("\n", start)
    line = text[start : len(text) if line_end < 0 else line_end]
    end = _SENTENCE_END.search(line)
    return line[: end.start()] if end else line


def _boxed(text: str, start: int) -> str:
    """From ``start`` to the brace that closes the box, else to the end of the line."""
    depth = 1
    for position in islice(_brace_positions(text, start), 1000):
        depth += 1 if text[position] == "{" else -1
        if not depth:
            return text[start:position]
    return text[start:].partition("\n")[0]


def _brace_positions(text: str, start: int) -> "re.Iterator":  # type: ignore
    ...
