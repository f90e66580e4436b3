"""What is kept of the scored rows of one model and route: whole numbers alone, so that sums are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sgpu.errors import DataError
from sgpu.fitted.profile import BINS, Floats
from sgpu.watch.sample import Sample, merged_sample

# Sums of probabilities and of squared errors are kept in steps of 2^-32: a float sum depends on its order.
UNIT = 2**32
NO_CHALLENGER = -1


@dataclass(frozen=True)
class Group:
    """Counts by name (`sgpu.watch.sketch` says which), histograms, and a sample of rows.

    ``probability`` and ``top_share`` count by one of BINS equal bins of [0, 1], ``sizes`` by answers used,
    ``labelled`` by (bin of the champion, bin of the challenger or NO_CHALLENGER, label).
    """

    sample: Sample
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
            "counts": _plain(self.counts),
            "probability": _plain(self.probability),
            "top_share": _plain(self.top_share),
            "sizes": _plain(self.sizes),
            "labelled": [[*key, self.labelled[key]] for key in sorted(self.labelled)],
            "sample": self.sample.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Group:
        """Raises DataError for what `to_json` did not write."""
        try:
            return cls(
                Sample.from_json(content["sample"]),
                Counter({str(name): int(count) for name, count in content["counts"].items()}),
                _by_place(content["probability"]),
                _by_place(content["top_share"]),
                _by_place(content["sizes"]),
                Counter({(int(i), int(j), int(label)): int(n) for i, j, label, n in content["labelled"]}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"a group of a sketch cannot be read ({error}); score the day again") from error


def merged_group(groups: Iterable[Group]) -> Group:
    """The group of all rows of the given ones."""
    parts = list(groups)
    whole = Group(merged_sample(group.sample for group in parts))
    for group in parts:
        for name in ("counts", "probability", "top_share", "sizes", "labelled"):
            getattr(whole, name).update(getattr(group, name))
    return whole


def dense(bins: Mapping[int, int], size: int = BINS) -> Floats:
    """(size,) counts by place."""
    counts = np.zeros(size)
    for place, count in bins.items():
        counts[place] = count
    return counts


def _plain(counts: Mapping[Any, int]) -> dict[str, int]:
    return {str(key): counts[key] for key in sorted(counts) if counts[key]}


def _by_place(content: Mapping[str, int]) -> Counter[int]:
    return Counter({int(place): int(count) for place, count in content.items()})
