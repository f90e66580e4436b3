"""What the unsafe flag is worth: are the flagged answers a coin toss, and is the rest better ranked?"""

from __future__ import annotations

import numpy as np

from sgpu.evaluation.auroc import auroc_of
from sgpu.evaluation.inputs import Bools, Floats
from sgpu.evaluation.ranking import Ranking, Statistic, ratio


def unsafe_statistic(confidence: Floats, label: Floats, unsafe: Bools, present: Bools) -> Statistic:
    """Share flagged, accuracy of flagged and kept rows, AUROC of kept rows; all arrays (n,).

    An AUROC of kept rows above that of all rows says that the flag finds answers that confidence misplaces.
    Source: the paper, "Detection of Unsafe SGPU Predictions".
    """
    flagged, kept = present & unsafe, present & ~unsafe
    right = np.where(present, label, 0.0)
    sums = np.stack([present, flagged, kept, flagged * right, kept * right]).astype(np.float64)
    ranking = Ranking.of(confidence, label, kept)

    def evaluate(counts: Floats) -> dict[str, Floats]:
        n, n_flagged, n_kept, right_flagged, right_kept = sums @ counts
        return {
            "unsafe_share": ratio(n_flagged, n),
            "accuracy_unsafe": ratio(right_flagged, n_flagged),
            "accuracy_kept": ratio(right_kept, n_kept),
            "auroc_kept": auroc_of(ranking.tally(counts)),
        }

    return evaluate
