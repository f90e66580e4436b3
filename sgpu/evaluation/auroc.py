"""Area under the ROC curve: does confidence rank right answers above wrong ones?"""

from __future__ import annotations

import numpy as np

from sgpu.evaluation.inputs import Floats
from sgpu.evaluation.ranking import Tally, ratio, tally_once


def auroc(confidence: Floats, label: Floats) -> float:
    """P(confidence of a right row > that of a wrong row), ties counting 1/2; NaN if one class is absent.

    ``confidence`` (n,) may be infinite; ``label`` (n,) is 1 right, 0 wrong. Raises DataError on NaN.
    """
    return float(auroc_of(tally_once(confidence, label))[0])


def auroc_of(tally: Tally) -> Floats:
    """(R,) areas. Every count is a whole number, so the sums are exact."""
    beaten = np.einsum("gr,gr->r", tally.wrong, tally.right_through)
    pairs_won = beaten - np.einsum("gr,gr->r", tally.wrong, tally.right) / 2
    n_right = tally.right.sum(axis=0)
    return ratio(pairs_won, n_right * (tally.n - n_right))
