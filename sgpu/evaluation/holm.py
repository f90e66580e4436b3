"""Holm's correction: p values of several comparisons, read together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError
from sgpu.evaluation.inputs import Floats


def holm(p: ArrayLike) -> Floats:
    """(m,) adjusted p values: rejecting those below a level errs anywhere with at most that probability.

    Undefined ones (NaN) stay NaN and do not count as comparisons. Raises DataError outside [0, 1].
    Source: Holm 1979.
    """
    values = np.asarray(p, dtype=np.float64)
    bad = np.flatnonzero((values < 0) | (values > 1))
    if values.ndim != 1 or bad.size:
        found = f"value {bad[0]} is {values.flat[bad[0]]}" if bad.size else f"the shape is {values.shape}"
        raise DataError(f"p values must be a vector within [0, 1], but {found}.")
    adjusted = np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    ordered = known[np.argsort(values[known], kind="stable")]
    # The smallest is multiplied by their number, the next by one less; a larger p never gets a smaller one.
    factors = np.arange(len(ordered), 0, -1)
    adjusted[ordered] = np.minimum(np.maximum.accumulate(values[ordered] * factors), 1.0)
    return adjusted
