"""A judge for numbers: the last number of the answer against the number of the reference, exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from sgpu.judges.base import Item, Vote

# A sign counts only at the start of a number, so that "10-20" holds 10 and 20. The exponent is bounded:
# text from a model must not be able to ask for a number of a billion digits.
_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>[-+\u2212]?)(?P<currency>[$€£¥]?)"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<exponent>[eE][-+]?[0-9]{1,3}(?![0-9]))?"
)
_MARK = "####"  # GSM8K writes the final answer after it


class NumericJudge:
    """Votes by exact decimal equality, so that 3.50 is 3.5 and 0.1 is not 0.1000001.

    The answer's number is the one after its last "####", or its last number. Thousands commas, currency
    signs and a percent sign are ignored: "50%" is 50, not 0.5. An answer without a number cannot be judged
    and votes None, but an empty answer is wrong: the model was asked and said nothing. With several
    references any equal one counts; None if none of them holds a number.
    """

    name = "numeric"

    def judge(self, items: Sequence[Item]) -> list[Vote]:
        """One vote per item, in order."""
        return [Vote(_equals(item)) for item in items]


def final_number(text: str) -> Decimal | None:
    """The number after the last "####" if there is that mark, else the last number; None without one."""
    numbers = list(_NUMBER.finditer(text.rpartition(_MARK)[2]))
    if not numbers:
        return None
    match = numbers[-1]
    value = Decimal(match["digits"].replace(",", "") + (match["exponent"] or ""))
    return -value if match["sign"] in ("-", "\u2212") else value


def _equals(item: Item) -> bool | None:
    wanted = {number for reference in item.references if (number := final_number(reference)) is not None}
    if not wanted:
        return None
    if not item.answer.strip():
        return False
    answered = final_number(item.answer)
    return None if answered is None else answered in wanted
