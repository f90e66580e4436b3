"""DeLong's test: are two methods' areas under the ROC curve different on the same rows?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from sgpu.errors import UsageError
from sgpu.evaluation.inputs import Floats, checked_labels, checked_scores

# A standard error or difference below this is rounding, not variation.
TINY = 1e-12


class AreaDifference(NamedTuple):
    """AUROC of one method minus another's, its standard error, normal interval and two-sided p.

    NaN where undefined; ``why`` then says so.
    """

    value: float
    se: float
    lo: float
    hi: float
    p: float
    why: str = ""


def delong(one: Floats, other: Floats, label: Floats, *, level: float = 0.95) -> AreaDifference:
    """Compare confidences ``one`` and ``other`` of the rows of ``label``, all (n,); ties count 1/2.

    The variance needs two right and two wrong rows. Two methods that rank alike have p = 1; areas that
    differ without any variation between rows (one method is perfect, the other constant) have no p. The
    test is of large samples: below some 20 rows of either class read it with the paired bootstrap beside it.
    Raises DataError on NaN: keep the rows that both methods have.

    Source: DeLong, DeLong and Clarke-Pearson 1988; by ranks as in Sun and Xu 2014.
    """
    if not 0 < level < 1:
        raise UsageError(f"level is {level}; a confidence level lies between 0 and 1.")
    labels = checked_labels(label)
    scores = np.stack([checked_scores(column, len(labels)) for column in (one, other)])
    n_right = int(labels.sum())
    n_wrong = len(labels) - n_right
    nan = float("nan")
    if not n_right or not n_wrong:
        return AreaDifference(nan, nan, nan, nan, nan, f"one class: {n_right} right and {n_wrong} wrong rows")
    beaten, unbeaten = placements(scores[:, labels == 1], scores[:, labels == 0])
    by_right, by_wrong = beaten[0] - beaten[1], unbeaten[0] - unbeaten[1]
    value = float(by_right.mean())
    if min(n_right, n_wrong) < 2:
        why = f"a variance needs 2 rows of each class, there are {n_right} right and {n_wrong} wrong"
        return AreaDifference(value, nan, nan, nan, nan, why)
    se = float(np.sqrt(by_right.var(ddof=1) / n_right + by_wrong.var(ddof=1) / n_wrong))
    if se < TINY:
        if abs(value) < TINY:
            return AreaDifference(0.0, 0.0, 0.0, 0.0, 1.0)
        return AreaDifference(value, se, nan, nan, nan, "the areas differ, but not a row varies")
    half = float(ndtri((1 + level) / 2)) * se
    return AreaDifference(value, se, value - half, value + half, float(2 * ndtr(-abs(value) / se)))


def placements(right: Floats, wrong: Floats) -> tuple[Floats, Floats]:
    """Share of wrong rows that each right row beats (M, n_right), and of right rows that beat each wrong one.

    ``right`` (M, n_right) and ``wrong`` (M, n_wrong) are the scores of M methods. Either mean is the AUROC.
    """
    from scipy.stats import rankdata

    n_right, n_wrong = right.shape[1], wrong.shape[1]
    # A row's rank among all less its rank within its class is how many of the other class it beats.
    rank = rankdata(np.concatenate([right, wrong], axis=1), axis=1)
    beaten = (rank[:, :n_right] - rankdata(right, axis=1)) / n_wrong
    return beaten, 1 - (rank[:, n_right:] - rankdata(wrong, axis=1)) / n_right
