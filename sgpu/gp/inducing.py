"""Where the sparse approximation is anchored, and the scale on which its kernel starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

DISTANCE_ROWS = 500
CLUSTER_ROWS = 10_000
# Closer rows are the same response set up to the rounding of the encoder.
SAME_ROW = 1e-3
ROW_DECIMALS, CENTRE_DECIMALS = 4, 6


def median_distance(x: NDArray[np.float64], seed: int) -> float:
    """Median distance between different rows of x (M, N), over at most 500 rows; 1 if all are the same.

    Coinciding rows (all answers alike) are left out: in easy data sets they are so many that the median
    would be 0.
    """
    distances = pdist(x[_some_rows(len(x), DISTANCE_ROWS, seed)])
    distances = distances[distances >= SAME_ROW]
    return float(np.median(distances)) if len(distances) else 1.0


def inducing_points(
    x: NDArray[np.float64], most: int, seed: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """(m, N) different points with m <= most: the distinct rows of x (M, N), or their k-means centres.

    Rows of more ``weights`` (M,) draw more of the centres. Two inducing points at one place would make the
    kernel matrix singular.
    """
    distinct = np.unique(x.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    chosen = _some_rows(len(x), CLUSTER_ROWS, seed)
    some = x[chosen]
    distinct = np.unique(some.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    clusters = KMeans(most, n_init=1, max_iter=20, random_state=seed).fit(
        some, sample_weight=None if weights is None else weights[chosen]
    )
    return np.unique(clusters.cluster_centers_.round(CENTRE_DECIMALS), axis=0)


def _some_rows(rows: int, most: int, seed: int) -> NDArray[np.intp]:
    if rows <= most:
        return np.arange(rows)
    return np.random.default_rng(seed).permutation(rows)[:most]
