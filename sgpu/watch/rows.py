"""From rows of the score table to a sketch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sgpu.errors import DataError
from sgpu.fitted.profile import BINS, Floats, shares_of
from sgpu.gp.representation import SHARES
from sgpu.watch.group import NO_CHALLENGER, UNIT, Group
from sgpu.watch.sample import Sample, keys_of, sample_of, smallest
from sgpu.watch.sketch import Key, Sketch, short_name, sorted_keys

Columns = dict[str, NDArray[Any]]


def sketch_of(scores: pa.Table) -> Sketch:
    """The sketch of rows of the score table; DataError for a probability or share outside [0, 1]."""
    columns = {
        "probability": _numbers(scores, "probability"),
        "top_share": _numbers(scores, "top_eigenvalue_share"),
        "unsafe": _numbers(scores, "unsafe"),
        "size": _numbers(scores, "n_used"),
        "label": _numbers(scores, "label"),
        "accepted": _numbers(scores, "accepted"),
        "shadow": _numbers(scores, "shadow_probability"),
        "shadow_unsafe": _numbers(scores, "shadow_unsafe"),
    }
    for name, optional in (("probability", False), ("top_share", False), ("shadow", True)):
        _check(columns[name], name, optional)
    keys = keys_of(scores["request_id"].to_pylist())
    groups: dict[Key, Group] = {}
    for key, rows in _places(scores).items():
        own = {name: column[rows] for name, column in columns.items()}
        groups[key] = _group(own, _sample(scores, keys, columns["probability"], rows))
    return Sketch(
        {key: groups[key] for key in sorted_keys(groups)},
        _distinct(scores, "scorer_sha256"),
        _distinct(scores, "encoder_sha256"),
        _distinct(scores, "shadow_scorer"),
    )


def _numbers(scores: pa.Table, name: str) -> Floats:
    """A column as float64, NaN where it is null."""
    values = pc.cast(scores[name], pa.float64()).combine_chunks()
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _check(values: Floats, name: str, optional: bool) -> None:
    # Written so that NaN counts as bad: every comparison with it is false.
    bad = ~((values >= 0) & (values <= 1 + 1e-9))
    if optional:
        bad &= ~np.isnan(values)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{name} of row {row} of the scores is {values[row]}, outside [0, 1]; "
            "rows without a score belong in the quarantine"
        )


def _distinct(scores: pa.Table, name: str) -> frozenset[str]:
    return frozenset(value for value in pc.unique(scores[name]).to_pylist() if value is not None)


def _places(scores: pa.Table) -> dict[Key, NDArray[np.intp]]:
    """The rows of each model and route."""
    names = [[short_name(value) for value in scores[name].to_pylist()] for name in ("model", "route")]
    places: dict[Key, list[int]] = {}
    for row, key in enumerate(zip(*names, strict=True)):
        places.setdefault(key, []).append(row)
    return {key: np.array(rows) for key, rows in places.items()}


def _sample(
    scores: pa.Table, keys: NDArray[np.uint64], probability: Floats, rows: NDArray[np.intp]
) -> Sample:
    chosen = rows[smallest(keys[rows])]
    spectra = scores["spectrum"].take(pa.array(chosen)).to_pylist()
    shares = np.empty((len(chosen), SHARES))
    lengths = np.array([len(values) for values in spectra])
    for n in np.unique(lengths):
        own = np.flatnonzero(lengths == n)
        shares[own] = shares_of(np.array([spectra[place] for place in own], dtype=np.float64))
    return sample_of(keys[chosen], probability[chosen], shares)


def _group(own: Columns, sample: Sample) -> Group:
    probability, shadow = own["probability"], own["shadow"]
    has_label, has_shadow, has_rule = (~np.isnan(own[name]) for name in ("label", "shadow", "accepted"))
    label = np.where(has_label, own["label"], 0.0)
    error, shadow_error = (probability - label) ** 2, (shadow - label) ** 2
    accepted, paired = own["accepted"] == 1, has_label & has_shadow
    gain = (error - shadow_error)[paired]
    counted = {
        "rows": probability >= 0,
        "unsafe": own["unsafe"] == 1,
        "decided": has_rule,
        "accepted": accepted,
        "shadow_rows": has_shadow,
        "shadow_unsafe": has_shadow & (own["shadow_unsafe"] == 1),
        "labelled": has_label,
        "right": has_label & (label == 1),
        "accepted_labelled": accepted & has_label,
        "accepted_wrong": accepted & has_label & (label == 0),
        "paired": paired,
    }
    summed = {
        "probability": probability,
        "shadow_probability": shadow[has_shadow],
        "squared_error": error[has_label],
        "shadow_squared_error": shadow_error[paired],
        "gain": gain,
        "gain_squared": gain**2,
    }
    counts = {name: int(np.count_nonzero(mask)) for name, mask in counted.items()}
    counts |= {name: _steps(values) for name, values in summed.items()}
    return Group(
        sample,
        Counter(counts),
        _tally(binned(probability)),
        _tally(binned(own["top_share"])),
        _tally(own["size"].astype(np.int64)),
        _cells(probability[has_label], shadow[has_label], label[has_label]),
    )


def _cells(probability: Floats, shadow: Floats, label: Floats) -> Counter[tuple[int, int, int]]:
    """Labelled rows by bin of the champion, bin of the challenger, and label."""
    there = ~np.isnan(shadow)
    other = np.where(there, binned(np.where(there, shadow, 0.0)), NO_CHALLENGER)
    rows = np.stack([binned(probability), other, label.astype(np.int64)], axis=1)
    cells, counts = np.unique(rows, axis=0, return_counts=True)
    return Counter({(int(i), int(j), int(y)): int(n) for (i, j, y), n in zip(cells, counts, strict=True)})


def binned(values: Floats) -> NDArray[np.int64]:
    """The bin of each value within [0, 1]; 1 belongs to the last."""
    return np.minimum((values * BINS).astype(np.int64), BINS - 1)


def _steps(values: Floats) -> int:
    """Their sum in steps of 1 / UNIT."""
    return int(np.rint(values * UNIT).astype(np.int64).sum())


def _tally(values: NDArray[np.int64]) -> Counter[int]:
    found, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))
