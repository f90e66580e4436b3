"""DeLong's variance: are two areas under the ROC curve different, and where does one of few rows lie?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from sgpu.evaluation.inputs import Floats, check_level, checked_labels, checked_scores

# A standard error or difference below this is rounding, not variation.
TINY = 1e-12
# Below so many rows of either class a percentile bootstrap of AUROC is too narrow, and a point at 1.
FEW_ROWS = 30


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


def delong(first: Floats, second: Floats, label: Floats, *, level: float = 0.95) -> AreaDifference:
    """Compare confidences ``first`` and ``second`` of the rows of ``label``, all (n,); ties count 1/2.

    The variance needs two right and two wrong rows. Two methods that rank alike have p = 1; areas that
    differ without any variation between rows (one method is perfect, the other constant) have no p. The
    test is of large samples: below some 20 rows of either class read it with the paired bootstrap beside it.
    Raises DataError on NaN: keep the rows that both methods have.

    Source: DeLong, DeLong and Clarke-Pearson 1988; by ranks as in Sun and Xu 2014.
    """
    check_level(level)
    labels = checked_labels(label)
    scores = np.stack([checked_scores(column, len(labels)) for column in (first, second)])
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
    return AreaDifference(value, se, *normal_interval(value, se, level))


def normal_interval(value: float, se: float, level: float) -> tuple[float, float, float]:
    """Lower and upper bound of a ``value`` with a standard error above 0, and two-sided p that it is 0."""
    half = float(ndtri((1 + level) / 2)) * se
    return value - half, value + half, float(2 * ndtr(-abs(value) / se))


def few_rows_interval(score: Floats, label: Floats, level: float = 0.95) -> tuple[float, float]:
    """Bounds of an AUROC of fewer than `FEW_ROWS` rows of a class; ``score`` and ``label`` are (n,).

    DeLong's on the scale of the logit, which stays within 0 and 1 (Qin and Hotilovac 2008 compare them).
    Where no row varies, as at an area of 1, or a class has one row, DeLong has no variance: the bounds are
    then of Clopper and Pearson 1934 for as many independent pairs of a right and a wrong row as there are,
    the number of rows of the smaller class. They hold for any distribution and are wide. NaN where a class
    is absent. Raises DataError on NaN and UsageError for a level outside 0 to 1.
    """
    from scipy.stats import beta

    check_level(level)
    labels = checked_labels(label)
    scores = checked_scores(score, len(labels))[None]
    n_right = int(labels.sum())
    n_wrong = len(labels) - n_right
    pairs = min(n_right, n_wrong)
    if not pairs:
        return float("nan"), float("nan")
    beaten, unbeaten = placements(scores[:, labels == 1], scores[:, labels == 0])
    area = float(beaten.mean())
    se = 0.0
    if pairs > 1:
        se = float(np.sqrt(beaten.var(ddof=1) / n_right + unbeaten.var(ddof=1) / n_wrong))
    if se < TINY:
        tail, won = (1 - level) / 2, area * pairs
        lo = beta.ppf(tail, won, pairs - won + 1) if won > TINY else 0.0
        hi = beta.ppf(1 - tail, won + 1, pairs - won) if pairs - won > TINY else 1.0
        return float(lo), float(hi)
    half = float(ndtri((1 + level) / 2)) * se / (area * (1 - area))
    return float(expit(logit(area) - half)), float(expit(logit(area) + half))


def few_rows_caution(n_right: int, n_wrong: int) -> str:
    """A sentence for the reader of an AUROC of few rows; empty where there are enough, or it is undefined."""
    fewest, name = min((n_right, "right"), (n_wrong, "wrong"))
    if fewest == 0 or fewest >= FEW_ROWS:
        return ""
    verb = "is" if fewest == 1 else "are"
    return (
        f"Only {fewest} of {n_right + n_wrong} answers {verb} {name}; below {FEW_ROWS} of each kind the "
        "AUROC is uncertain, so read its interval."
    )


def placements(
    right: Floats, wrong: Floats, weights: tuple[Floats, Floats] | None = None
) -> tuple[Floats, Floats]:
    """Share of wrong rows that each right row beats (M, n_right), and of right rows that beat each wrong one.

    ``right`` (M, n_right) and ``wrong`` (M, n_wrong) are the scores of M methods; ties count one half. Each
    row counts as many as ``weights`` (n_right,) and (n_wrong,) say, by default as one. Either mean is the
    AUROC.
    """
    n_right, n_wrong = right.shape[1], wrong.shape[1]
    of_right, of_wrong = weights or (np.ones(n_right), np.ones(n_wrong))
    beaten, unbeaten = np.empty(right.shape), np.empty(wrong.shape)
    for method, scores in enumerate(np.concatenate([right, wrong], axis=1)):
        distinct, rank = np.unique(scores, return_inverse=True)
        right_rows = np.bincount(rank[:n_right], of_right, minlength=len(distinct))
        wrong_rows = np.bincount(rank[n_right:], of_wrong, minlength=len(distinct))
        beaten[method] = (np.cumsum(wrong_rows) - wrong_rows / 2)[rank[:n_right]] / of_wrong.sum()
        unbeaten[method] = 1 - (np.cumsum(right_rows) - right_rows / 2)[rank[n_right:]] / of_right.sum()
    return beaten, unbeaten
