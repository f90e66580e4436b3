"""The choice of layers by validation rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgpu.evaluation.auroc import auroc
from sgpu.probes.states import Floats


def validation_auroc(score: Floats, target: Floats) -> float | None:
    """AUROC of (n,) scores for 0/1 targets; None where it is undefined: one class, or no row."""
    if len(np.unique(target)) < 2:
        return None
    area = auroc(score, target)
    return None if math.isnan(area) else area


def best_layers(aurocs: Sequence[float | None], at_least: int) -> tuple[int, int]:
    """(first, stop) of the ``at_least`` or more consecutive layers with the highest mean AUROC.

    The shortest, then the earliest of equals. All layers if there are fewer, the middle ones where the
    validation rows cannot tell (None).

    Source: Kossen et al. 2024 choose SEP's layers so, but on test rows.
    """
    n, length = len(aurocs), min(at_least, len(aurocs))
    known = [area for area in aurocs if area is not None]
    if len(known) < n:
        first = (n - length) // 2
        return first, first + length
    ranges = [(first, first + size) for size in range(length, n + 1) for first in range(n - size + 1)]
    return max(ranges, key=lambda span: math.fsum(known[slice(*span)]) / (span[1] - span[0]))
