"""How a number is written in the page: three decimals, an interval, or the word for why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TypeGuard

UNDEFINED = "undefined"
_HALF_UP = Context(prec=400, rounding=ROUND_HALF_UP)  # digits enough for every float


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a finite number."""
    return value is not None and math.isfinite(value)


def rounded(value: float, places: int) -> float:
    """Return a finite number as it is printed: halves are rounded up, as in the paper.

    0.7565 becomes 0.757, whichever side of it its nearest binary fraction lies.
    """
    return float(Decimal(str(value)).quantize(Decimal(1).scaleb(-places), context=_HALF_UP)) + 0.0


def decimals(value: float | None, places: int = 3) -> str:
    """Return a number with three decimals, or "undefined"."""
    return f"{rounded(value, places):.{places}f}".replace("-", "−") if is_finite(value) else UNDEFINED


def dash(value: float | None, write: Callable[[float], str]) -> str:
    """What ``write`` makes of the number, or a dash."""
    return "–" if value is None else write(value)


def format_signed(value: float, places: int = 3) -> str:
    """Return three decimals with a sign, none for what prints as zero."""
    text = decimals(value, places)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def probability(value: float | None) -> str:
    """A p-value: two significant digits, never below 0.001."""
    if not is_finite(value):
        return UNDEFINED
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def interval(lo: float | None, hi: float | None) -> str:
    """``[lo, hi]``, or nothing where either end is unknown."""
    return f"[{decimals(lo)}, {decimals(hi)}]" if is_finite(lo) and is_finite(hi) else ""


def percent(value: float | None) -> str:
    """A share in percent with one decimal, or "undefined"."""
    return f"{100 * value:.1f} %" if is_finite(value) else UNDEFINED


def count(value: int) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def seconds(value: float) -> str:
    """A duration: seconds, then minutes, then hours."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
