"""From a score to a probability, fitted on the validation split only.

``minmax`` is for comparison with the paper, whose calibration errors look like it; ``platt`` and
``isotonic`` are what a user should deploy. A constant score carries no information and maps to the base
rate of the validation split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import expit

from sgpu.errors import DataError, UsageError
from sgpu.evaluation.inputs import Bools, Floats, checked_labels, checked_scores
from sgpu.registry import unknown_name

# Confidence (n,) -> probability (n,) in [0, 1].
ScoreMap = Callable[[Floats], Floats]


class UndefinedMap(DataError):
    """The validation rows do not determine the map; the message says why."""


def fit_mapping(name: str, confidence: Floats, label: Floats) -> ScoreMap:
    """Fit the mapping ``name`` on validation ``confidence`` and ``label``, (n,) each.

    The returned function takes any (m,) confidences: missing ones (NaN) stay missing, infinite ones count
    as the most extreme finite confidence of the validation split. "none" takes confidences for
    probabilities as they are. Raises UsageError for an unknown name, DataError on NaN, UndefinedMap where no
    row has a finite confidence or a map that learns from labels finds those of one class only.
    """
    if name not in MAPPINGS:
        raise UsageError(unknown_name("mapping", name, sorted(MAPPINGS)))
    labels = checked_labels(label)
    scores = checked_scores(confidence, len(labels))
    if name == "none":
        return _clip
    finite = scores[np.isfinite(scores)]
    if not finite.size:
        raise UndefinedMap(
            f"mapping {name!r} has no validation row with a finite confidence and a label to be fitted on."
        )
    if name in LEARN_FROM_LABELS and labels.min() == labels.max():
        raise UndefinedMap(
            f"mapping {name!r} needs right and wrong validation rows, but all {len(labels)} are "
            f"{'right' if labels[0] else 'wrong'}."
        )
    if finite.min() == finite.max():
        base_rate = float(labels.mean())
        return where_known(lambda scores: np.full(np.shape(scores), base_rate))
    bounded = _bound(finite)
    fitted = MAPPINGS[name](bounded(scores), labels)
    return where_known(lambda confidence: _clip(fitted(bounded(confidence))))


def fit_minmax(confidence: Floats, label: Floats) -> ScoreMap:
    """Linear from the lowest (0) to the highest (1) validation confidence."""
    low, high = confidence.min(), confidence.max()
    return lambda scores: (scores - low) / (high - low)


def fit_platt(confidence: Floats, label: Floats) -> ScoreMap:
    """A sigmoid a x + b by maximum likelihood on Platt's smoothed targets (Platt 1999, section 2.2)."""
    from sklearn.linear_model import LogisticRegression

    centre, scale = confidence.mean(), confidence.std()
    # Each row is a fraction of a right and of a wrong one. The smoothing keeps the slope finite when a
    # score separates the classes.
    n_right = label.sum()
    right_share = np.where(label == 1, (n_right + 1) / (n_right + 2), 1 / (len(label) - n_right + 2))
    x = np.tile((confidence - centre) / scale, 2)[:, None]
    sigmoid = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(
        x, np.repeat([1, 0], len(label)), sample_weight=np.concatenate([right_share, 1 - right_share])
    )
    slope, offset = float(sigmoid.coef_[0, 0]), float(sigmoid.intercept_[0])
    return lambda scores: expit(slope * (scores - centre) / scale + offset)


def fit_isotonic(confidence: Floats, label: Floats) -> ScoreMap:
    """The best increasing step function, linear between steps (Zadrozny and Elkan 2002)."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(confidence, label)
    return lambda scores: np.asarray(fitted.predict(scores), dtype=np.float64)


def _clip(scores: Floats) -> Floats:
    return np.clip(np.asarray(scores, dtype=np.float64), 0.0, 1.0)


MAPPINGS: Mapping[str, Callable[[Floats, Floats], ScoreMap]] = {
    "minmax": fit_minmax,
    "platt": fit_platt,
    "isotonic": fit_isotonic,
    "none": lambda confidence, label: _clip,
}

# One class says nothing of where the other begins: these would be certain of it for every score.
LEARN_FROM_LABELS = frozenset({"platt", "isotonic"})


def where_known(mapped: ScoreMap) -> ScoreMap:
    """The map, under which a missing score (NaN) stays missing."""

    def apply(confidence: Floats) -> Floats:
        scores = np.asarray(confidence, dtype=np.float64)
        present = ~np.isnan(scores)
        probability = np.full(scores.shape, np.nan)
        if present.any():
            probability[present] = mapped(scores[present])
        return probability

    return apply


def _bound(finite: Floats) -> ScoreMap:
    low, high = finite.min(), finite.max()

    def bounded(scores: Floats) -> Floats:
        infinite: Bools = np.isinf(scores)
        return np.where(infinite, np.clip(scores, low, high), scores)

    return bounded
