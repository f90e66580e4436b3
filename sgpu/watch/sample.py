"""A uniform sample of rows that can be merged: those whose request ids have the smallest hashes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpu.errors import DataError
from sgpu.gp.representation import SHARES, Floats

SAMPLED = 1024  # rows a group
STEPS = 65535  # a share is kept to 1 / STEPS
_ROW = np.dtype([("key", "<u8"), ("probability", "<f8"), ("shares", "<u2", (SHARES,))])


@dataclass(frozen=True, eq=False)
class Sample:
    """At most SAMPLED rows in ascending order of their keys; ``rows`` is a packed array of _ROW."""

    rows: NDArray[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self.rows.tobytes() == other.rows.tobytes()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def probability(self) -> Floats:
        """(k,) probabilities."""
        return np.asarray(self.rows["probability"], dtype=np.float64)

    @property
    def shares(self) -> Floats:
        """(k, SHARES) shares of the spectra."""
        return np.asarray(self.rows["shares"] / STEPS, dtype=np.float64)

    def to_json(self) -> str:
        """The packed rows in base64."""
        return base64.b64encode(self.rows.tobytes()).decode()

    @classmethod
    def from_json(cls, text: str) -> Sample:
        """Raises DataError for what `to_json` did not write."""
        try:
            return cls(np.frombuffer(base64.b64decode(text, validate=True), _ROW))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"the sample of a sketch cannot be read ({error}); score the day again"
            ) from error


def keys_of(request_ids: Sequence[str]) -> NDArray[np.uint64]:
    """(Q,) the first 64 bits of the sha256 of each id."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in request_ids)
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def smallest(keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Places of the SAMPLED smallest keys, and of all that tie with the last of them."""
    if len(keys) <= SAMPLED:
        return np.arange(len(keys))
    return np.flatnonzero(keys <= np.partition(keys, SAMPLED - 1)[SAMPLED - 1])


def sample_of(keys: NDArray[np.uint64], probability: Floats, shares: Floats) -> Sample:
    """The sample of rows (Q,), (Q,) and (Q, SHARES)."""
    rows = np.empty(len(keys), _ROW)
    rows["key"], rows["probability"] = keys, probability
    rows["shares"] = np.rint(shares * STEPS)
    return _first(rows)


def merged_sample(samples: Iterable[Sample]) -> Sample:
    """The sample of all rows that the given ones were drawn from."""
    parts = [sample.rows for sample in samples]
    return _first(np.concatenate([np.empty(0, _ROW), *parts]))


def _first(rows: NDArray[Any]) -> Sample:
    kept = rows[smallest(rows["key"])]
    # Rows of one key are put in order of what they hold, so that the sample is a function of the set of rows.
    columns = (*kept["shares"].T[::-1], kept["probability"], kept["key"])
    return Sample(np.ascontiguousarray(kept[np.lexsort(columns)][:SAMPLED]))
