"""Probabilities moved to a target with a few of its labels; their order stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.mapping import ScoreMap, UndefinedMap, fit_mapping, where_known

# A probability of exactly 0 or 1 has no logit.
EDGE = 1e-6
# Standard deviation of the shift before any label is seen: one class only must not give certainty.
SHIFT_SD = 2.0
SHIFT_BOUND = 10.0


def recalibrated(name: str, probability: Floats, sample: Floats, label: Floats) -> Floats:
    """``probability`` (Q,) by the map ``name`` fitted to ``sample`` and ``label``, (m,) each.

    With m = 0 as it was. NaN stays NaN. Raises UndefinedMap where the labels do not determine the map.
    """
    if not len(label):
        return probability
    return where_known(MAPS[name](_logit(sample), label))(_logit(probability))


def fit_shift(scores: Floats, label: Floats) -> ScoreMap:
    """One number added to every logit: the target is easier or harder than the sources, as informative.

    The most probable one under N(0, SHIFT_SD^2).
    """

    def loss(shift: float) -> float:
        moved = scores + shift
        return float(np.logaddexp(0, moved).sum() - label @ moved + 0.5 * (shift / SHIFT_SD) ** 2)

    best = minimize_scalar(loss, bounds=(-SHIFT_BOUND, SHIFT_BOUND), method="bounded").x
    return lambda at: expit(at + best)


def fit_logit_line(scores: Floats, label: Floats) -> ScoreMap:
    """Fit a slope and a shift of the logits; UndefinedMap where the scores fall as answers get better.

    A negative slope would turn the ranking round on the word of a few labels.
    """
    fitted = fit_mapping("platt", scores, label)
    low, high = fitted(np.array([scores.min(), scores.max()]))
    if low > high:
        raise UndefinedMap(f"the slope that {len(label)} labels give is negative")
    return fitted


MAPS: Mapping[str, Callable[[Floats, Floats], ScoreMap]] = {"shift": fit_shift, "platt": fit_logit_line}


def _logit(probability: Floats) -> Floats:
    return logit(np.clip(probability, EDGE, 1 - EDGE))
