"""Average rank over cells: which method is usually near the top?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sgpu.errors import DataError

# Values closer than this are tied: the same sums in another order.
DECIMALS = 12


@dataclass(frozen=True)
class AverageRank:
    """By method: its mean rank (1 is best) and in how many cells it is best, ties shared.

    A cell counts only if every method has a value there, because a rank among fewer methods is another
    quantity; ``n_undefined`` are the cells left out. Ranks are NaN where no cell is left.
    """

    rank: dict[str, float]
    best_in: dict[str, float]
    n_cells: int
    n_undefined: int


def average_rank(values: Mapping[str, ArrayLike], *, higher_is_better: bool = True) -> AverageRank:
    """Rank the methods in each of C cells by ``values`` (C,), NaN or None where undefined; ties get the mean.

    Leave out methods that have no value in any cell. Raises DataError for columns of unequal length.
    """
    from scipy.stats import rankdata

    columns = {method: np.asarray(column, dtype=np.float64) for method, column in values.items()}
    if len({column.shape for column in columns.values()}) > 1:
        shapes = ", ".join(f"{method}: {column.shape}" for method, column in columns.items())
        raise DataError(
            f"methods have values for unequal numbers of cells ({shapes}). Align the cells first."
        )
    table = np.round(np.stack(list(columns.values()), axis=1), DECIMALS) if columns else np.empty((0, 0))
    complete = table[~np.isnan(table).any(axis=1)]
    if not len(complete):
        undefined = dict.fromkeys(columns, float("nan"))
        return AverageRank(undefined, dict.fromkeys(columns, 0.0), 0, len(table))
    uncertainty = -complete if higher_is_better else complete
    ranks = rankdata(uncertainty, axis=1).mean(axis=0)
    best = uncertainty == uncertainty.min(axis=1, keepdims=True)
    best_in = (best / best.sum(axis=1, keepdims=True)).sum(axis=0)
    return AverageRank(
        dict(zip(columns, ranks.tolist(), strict=True)),
        dict(zip(columns, best_in.tolist(), strict=True)),
        len(complete),
        len(table) - len(complete),
    )
