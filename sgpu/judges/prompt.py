"""The judge's question, in the paper's words (appendix "Truthfulness Labeling")."""

from __future__ import annotations

from collections.abc import Sequence

MAX_REFERENCES = 20

ONE_REFERENCE = """\
We are assessing the quality of answers to the following question: {question}.
The expected answer is: {references}.
The proposed answer is: {answer}.
Within the context of the question, does the proposed answer mean the same as the expected answer?
Respond only with yes or no.
Response:"""

# The paper has one slot and no word on several references. This wording is the one of the code that its
# protocol goes back to (Farquhar et al., Nature 2024).
SEVERAL_REFERENCES = """\
We are assessing the quality of answers to the following question: {question}.
The following are expected answers to this question: {references}.
The proposed answer is: {answer}.
Within the context of the question, does the proposed answer mean the same as any of the expected answers?
Respond only with yes or no.
Response:"""


def judge_prompt(question: str, references: Sequence[str], answer: str) -> str:
    """The prompt for one answer; the first 20 references are shown, separated by semicolons.

    Every run of whitespace becomes one space in what is filled in: an answer is written by the model that
    is being judged, and with its own line breaks it could forge the lines that follow it.
    Raises ValueError without a reference.
    """
    shown = [one_line(reference) for reference in references[:MAX_REFERENCES]]
    if not shown:
        raise ValueError(f"cannot judge without a reference; question {question[:80]!r} has none")
    template = ONE_REFERENCE if len(shown) == 1 else SEVERAL_REFERENCES
    return template.format(question=one_line(question), references="; ".join(shown), answer=one_line(answer))


def one_line(text: str) -> str:
    """``text`` with every run of whitespace as one space, so that it cannot pose as further lines."""
    # split() also breaks at \v, \f, \x1c-\x1e, \x85, U+2028 and U+2029: all that may look like a new line.
    return " ".join(text.split())
