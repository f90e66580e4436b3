"""What an encoder must do: give every text one unit vector."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)


class Encoder(Protocol):
    """Sentences to unit vectors. Features of two encoders, or of two dtypes, are never mixed."""

    @property
    def name(self) -> str:
        """The name that tables are partitioned by."""

    @property
    def dtype(self) -> str:
        """The precision of the forward pass, "float32" or "bfloat16"; the vectors are float32 always."""

    @property
    def dim(self) -> int:
        """D, the length of a vector."""

    @property
    def fingerprint(self) -> str:
        """Identifies the weights (sha256, hex)."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), D) float32 rows of unit norm; equal texts get bitwise equal rows."""


def distinct(items: Iterable[T]) -> tuple[list[T], NDArray[np.intp]]:
    """The different items in order of first sight, and for each item its place among them."""
    places: dict[T, int] = {}
    index = [places.setdefault(item, len(places)) for item in items]
    return list(places), np.array(index, dtype=np.intp)
