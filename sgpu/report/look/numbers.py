"""How a number is written in the page: three decimals, an interval, or the word for why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard

UNDEFINED = "undefined"


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a finite number."""
    return value is not None and math.isfinite(value)


def decimals(value: float | None) -> str:
    """Three decimals, or "undefined"."""
    if not is_finite(value):
        return UNDEFINED
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")


def dash(value: float | None, write: Callable[[float], str]) -> str:
    """What ``write`` makes of the number, or a dash."""
    return "–" if value is None else write(value)


def format_signed(value: float) -> str:
    """Return three decimals with a sign, none for what prints as zero."""
    return ("+" if round(value, 3) > 0 else "") + decimals(value)


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
