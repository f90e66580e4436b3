"""Tests that share one correction: those of all rows, and those of single models and routes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgpu.evaluation.holm import holm
from sgpu.evaluation.inputs import Floats
from sgpu.watch.comparisons import Comparison

Family = Sequence[int]


def families_of(asked: Sequence[Comparison]) -> list[Family]:
    """Places of the tests that are possible: of all rows, then of single groups; an empty family is left out.

    A change of all traffic is to be seen however many routes there are, so its few tests do not share a
    correction with thousands of others.
    """
    possible = [place for place, one in enumerate(asked) if one.run is not None]
    whole = [place for place in possible if asked[place].key is None]
    single = [place for place in possible if asked[place].key is not None]
    return [family for family in (whole, single) if family]


def adjusted(p: Sequence[float], families: Sequence[Family]) -> Floats:
    """Holm's correction within each family, and Bonferroni's over the families; NaN outside of all.

    Rejecting those at most alpha errs anywhere with at most that probability.
    """
    values, found = np.asarray(p, dtype=np.float64), np.full(len(p), np.nan)
    for family in families:
        places = list(family)
        found[places] = np.minimum(1.0, holm(values[places]) * len(families))
    return found
