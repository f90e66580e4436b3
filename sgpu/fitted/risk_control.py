"""The probability above which answers may be accepted, so that few of the accepted ones are wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Bools, checked_labels, checked_probabilities
from sgpu.fitted.profile import AcceptanceRule

# Fixed before any row is seen, as the proof demands. From each start the cuts are tried one after another
# towards lower ones. Several starts because the highest cuts accept too few rows to show anything.
CUTS = tuple(step / 200 for step in range(199, -1, -1))
STARTS = (0.95, 0.85, 0.7, 0.55)


@dataclass(frozen=True)
class ControlledCut:
    """A rule for accepting answers, and what shows that it holds.

    Of the calibration rows its cut accepts ``accepted``, of which ``wrong`` are wrong; ``upper`` is the
    Clopper-Pearson bound on their error rate that was compared with the rule's alpha.
    """

    rule: AcceptanceRule
    accepted: int
    wrong: int
    upper: float


def probability_cut(
    probability: ArrayLike, label: ArrayLike, alpha: float, delta: float = 0.05
) -> ControlledCut | None:
    """The rule with the lowest cut that holds for ``alpha`` and ``delta``; None if no cut qualifies.

    ``probability`` and ``label`` (1 right, 0 wrong) are (M,) and belong to rows that the model was not
    fitted to, drawn like those that it will be used on and independently of each other: of rows that belong
    together, such as questions on one document, give one (`LabelledSets.independent`), or the promise is
    broken several times as often as ``delta`` says. The error rate is then that of a row of any group.
    Nothing is asked of the probabilities: neither that they are calibrated nor that fewer are right below a
    cut than above. Raises UsageError for levels outside (0, 1), DataError for NaN or other numbers than
    probabilities and labels.

    A cut is accepted where an error rate above ``alpha`` would give so few wrong rows with probability
    ``delta`` over the number of starts at most, by the exact binomial distribution; testing goes on to the
    next lower cut only where this one was accepted. Source: Angelopoulos, Bates, Candes, Jordan and Lei
    2021, "Learn then Test", algorithm 1 (fixed sequence testing with several starts).
    """
    _check_levels(alpha, delta)
    labels = checked_labels(label)
    values = checked_probabilities(probability, len(labels))
    cuts = np.array(CUTS)
    order = np.argsort(-values)
    accepted = np.searchsorted(-values[order], -cuts, side="right")
    wrong = np.concatenate([[0], np.cumsum(labels[order] == 0)])[accepted]
    level = delta / len(STARTS)
    holds = p_values(wrong, accepted, alpha) <= level
    lowest = max((_last_of_run(holds, int(np.flatnonzero(cuts <= start)[0])) for start in STARTS), default=-1)
    if lowest < 0:
        return None
    n, k = int(accepted[lowest]), int(wrong[lowest])
    rule = AcceptanceRule(alpha, delta, float(cuts[lowest]), len(labels))
    return ControlledCut(rule, n, k, upper_bound(k, n, level))


def p_values(wrong: ArrayLike, accepted: ArrayLike, alpha: float) -> Any:
    """Probability of at most ``wrong`` of ``accepted`` rows if each is wrong with probability ``alpha``."""
    return binom.cdf(wrong, accepted, alpha)


def upper_bound(wrong: int, accepted: int, level: float) -> float:
    """The Clopper-Pearson bound: an error rate above it gives so few wrong rows with at most ``level``."""
    return 1.0 if wrong == accepted else float(beta.ppf(1 - level, wrong + 1, accepted - wrong))


def rows_needed(alpha: float, delta: float = 0.05) -> int:
    """Accepted rows below which no cut can qualify, even if not one of them is wrong."""
    _check_levels(alpha, delta)
    return math.ceil(math.log(delta / len(STARTS)) / math.log1p(-alpha))


def _last_of_run(holds: Bools, start: int) -> int:
    """The last place of the unbroken run of True from ``start``; -1 where there is none."""
    broken = np.flatnonzero(~holds[start:])
    length = int(broken[0]) if broken.size else len(holds) - start
    return start + length - 1 if length else -1


def _check_levels(alpha: float, delta: float) -> None:
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not 0 < value < 1:
            raise UsageError(f"{name} is {value}; give a share between 0 and 1, for instance 0.05")
