"""How many questions a data set grants of those that a study requests, from what its card knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgpu.errors import DataError


@dataclass(frozen=True)
class Sizes:
    """Questions of the two splits; train holds validation too."""

    train: int
    test: int

    @property
    def total(self) -> int:
        return self.train + self.test


def granted(requested: Sizes, pools: Mapping[str, int]) -> Sizes | None:
    """The rule of `sgpu.datasets.split` on counts: test is filled first; None where no pool is known.

    An upper bound where groups of several rows stand at the cut. Raises DataError for pools of other names.
    """
    if not pools:
        return None
    if set(pools) == {"all"}:
        test = min(requested.test, pools["all"])
        return Sizes(min(requested.train, pools["all"] - test), test)
    if set(pools) <= {"train", "test"}:
        return Sizes(min(requested.train, pools.get("train", 0)), min(requested.test, pools.get("test", 0)))
    raise DataError(f"a card counts the pools {sorted(pools)}; give 'all', or 'train' and 'test'")
