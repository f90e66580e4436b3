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
    distances = pdist(_some_rows(x, DISTANCE_ROWS, seed))
    distances = distances[distances >= SAME_ROW]
    return float(np.median(distances)) if len(distances) else 1.0


def inducing_points(x: NDArray[np.float64], most: int, seed: int) -> NDArray[np.float64]:
    """(m, N) different points with m <= most: the distinct rows of x (M, N), or their k-means centres.

    Two inducing points at one place would make the kernel matrix singular.
    """
    distinct = np.unique(x.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    some = _some_rows(x, CLUSTER_ROWS, seed)
    distinct = np.unique(some.round(ROW_DECIMALS), axis=0)
    if len(distinct) <= most:
        return distinct
    clusters = KMeans(most, n_init=1, max_iter=20, random_state=seed).fit(some)
    return np.unique(clusters.cluster_centers_.round(CENTRE_DECIMALS), axis=0)


def _some_rows(x: NDArray[np.float64], most: int, seed: int) -> NDArray[np.float64]:
    if len(x) <= most:
        return x
    return x[np.random.default_rng(seed).permutation(len(x))[:most]]
