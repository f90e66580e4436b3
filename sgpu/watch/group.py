"""What is kept of the rows of one model and route: whole numbers, so that sums are exact, and a sample."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpu.errors import readable
from sgpu.fitted.profile import BINS, Floats
from sgpu.gp.representation import SHARES

SAMPLED = 1024  # rows a group
STEPS = 65535  # a share is kept to 1 / STEPS
_ROW = np.dtype([("key", "<u8"), ("probability", "<f8"), ("shares", "<u2", (SHARES,))])


@dataclass(frozen=True, eq=False)
class RowSample:
    """At most SAMPLED rows in ascending order of their keys; ``rows`` is a packed array of _ROW."""

    rows: NDArray[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSample) and self.rows.tobytes() == other.rows.tobytes()

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
    def from_json(cls, text: str) -> RowSample:
        """Raises DataError for what `to_json` did not write."""
        with readable("the sample of a sketch", "score the day again"):
            return cls(np.frombuffer(base64.b64decode(text, validate=True), _ROW))


def keys_of(request_ids: Sequence[str]) -> NDArray[np.uint64]:
    """(Q,) the first 64 bits of the sha256 of each id."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in request_ids)
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def smallest(keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Indexes of the SAMPLED smallest keys, and of all that tie with the last of them."""
    if len(keys) <= SAMPLED:
        return np.arange(len(keys))
    return np.flatnonzero(keys <= np.partition(keys, SAMPLED - 1)[SAMPLED - 1])


def sample_of(keys: NDArray[np.uint64], probability: Floats, shares: Floats) -> RowSample:
    """The sample of rows (Q,), (Q,) and (Q, SHARES)."""
    rows = np.empty(len(keys), _ROW)
    rows["key"], rows["probability"] = keys, probability
    rows["shares"] = np.rint(shares * STEPS)
    return _first(rows)


def merged_sample(samples: Iterable[RowSample]) -> RowSample:
    """The sample of all rows that the given ones were drawn from."""
    parts = [sample.rows for sample in samples]
    return _first(np.concatenate([np.empty(0, _ROW), *parts]))


def _first(rows: NDArray[Any]) -> RowSample:
    kept = rows[smallest(rows["key"])]
    # Rows of one key are put in order of what they hold, so that the sample is a function of the set of rows.
    columns = (*kept["shares"].T[::-1], kept["probability"], kept["key"])
    return RowSample(np.ascontiguousarray(kept[np.lexsort(columns)][:SAMPLED]))


# Sums of probabilities and of squared errors are kept in steps of 2^-32: a float sum depends on its order.
UNIT = 2**32
NO_CHALLENGER = -1
HISTOGRAMS = ("probability", "top_share", "sizes")  # of a group


@dataclass(frozen=True)
class Group:
    """Counts by name (`sgpu.watch.sketch` says which), histograms, and a sample of rows.

    ``sample`` and ``top_share`` are of the rows that have a spectrum, all else is of every row.
    ``probability`` and ``top_share`` count by one of BINS equal bins of [0, 1], ``sizes`` by answers used,
    ``labelled`` by (bin of the champion, bin of the challenger or NO_CHALLENGER, label).
    """

    sample: RowSample
    counts: Counter[str] = field(default_factory=Counter)
    probability: Counter[int] = field(default_factory=Counter)
    top_share: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    labelled: Counter[tuple[int, int, int]] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return self.counts["rows"]

    @property
    def histogram(self) -> Floats:
        """(BINS,) rows by probability."""
        return dense(self.probability)

    @property
    def mean_probability(self) -> float | None:
        return self.mean("probability", "rows")

    @property
    def unsafe_share(self) -> float | None:
        return self.share("unsafe", "rows")

    def share(self, part: str, whole: str) -> float | None:
        """One count over another; None where there is nothing to count."""
        return self.counts[part] / self.counts[whole] if self.counts[whole] else None

    def mean(self, total: str, rows: str) -> float | None:
        """A sum that is kept in steps of 1 / UNIT over a count of rows."""
        return self.counts[total] / (UNIT * self.counts[rows]) if self.counts[rows] else None

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: _plain(getattr(self, name)) for name in ("counts", *HISTOGRAMS)},
            "labelled": [[*key, self.labelled[key]] for key in sorted(self.labelled)],
            "sample": self.sample.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Group:
        """Raises DataError for what `to_json` did not write."""
        with readable("a group of a sketch", "score the day again"):
            return cls(
                sample=RowSample.from_json(content["sample"]),
                counts=Counter({str(name): int(count) for name, count in content["counts"].items()}),
                labelled=Counter({(int(i), int(j), int(y)): int(n) for i, j, y, n in content["labelled"]}),
                **{name: Counter({int(i): int(n) for i, n in content[name].items()}) for name in HISTOGRAMS},
            )


def merged_group(groups: Iterable[Group]) -> Group:
    """The group of all rows of the given ones."""
    parts = list(groups)
    whole = Group(merged_sample(group.sample for group in parts))
    for group in parts:
        for name in ("counts", *HISTOGRAMS, "labelled"):
            getattr(whole, name).update(getattr(group, name))
    return whole


def dense(bins: Mapping[int, int], size: int = BINS) -> Floats:
    """(size,) counts by index."""
    counts = np.zeros(size)
    for index, count in bins.items():
        counts[index] = count
    return counts


def _plain(counts: Mapping[Any, int]) -> dict[str, int]:
    return {str(key): counts[key] for key in sorted(counts) if counts[key]}
