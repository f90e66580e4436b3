"""Token sequences encoded so that what is encoded with a sequence changes no bit of its vector.

Matrix kernels are chosen by the shape of a batch and add in different orders; within one shape the vector of
a row depends neither on the other rows nor on its place. So there are two shapes for each length of
sequences: a small batch, filled up with repetitions where sequences are left over, and a large one, which is
faster. The large one is used only after its first batch of a length was seen to give the bits of small ones.
On the CPU that this was tried on it always did (bfloat16 with AMX, float32): kernels change below some 400
tokens a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Tokens = tuple[int, ...]


class FixedBatches:
    """Batches of ``small`` sequences of one length, or of as many as have ``token_budget`` tokens.

    ``embed`` turns sequences of one length into vectors, (B,) -> (B, D).
    """

    def __init__(self, embed: Callable[[list[Tokens]], Vectors], small: int, token_budget: int) -> None:
        self._embed, self._small, self._token_budget = embed, small, token_budget
        self._alike: dict[int, bool] = {}

    def encode(self, sequences: Sequence[Tokens]) -> Vectors:
        """(len(sequences), D) vectors; there is at least one sequence."""
        parts: list[Vectors] = []
        places = []
        for group in same_length([len(ids) for ids in sequences]):
            parts += self._group([sequences[place] for place in group])
            places.append(group)
        made = np.concatenate(parts)
        rows = np.empty_like(made)
        rows[np.concatenate(places)] = made
        return rows

    def _group(self, sequences: list[Tokens]) -> Iterator[Vectors]:
        """Vectors of sequences of one length, in order."""
        fitting = max(1, self._token_budget // max(1, len(sequences[0])))
        small = min(self._small, fitting)
        large = fitting - fitting % small
        done = 0
        while len(sequences) - done >= large > small and self._rounds_alike(sequences[done:][:large], small):
            yield self._embed(sequences[done : done + large])
            done += large
        for start in range(done, len(sequences), small):
            batch = sequences[start : start + small]
            yield self._embed(batch + [batch[0]] * (small - len(batch)))[: len(batch)]

    def _rounds_alike(self, batch: list[Tokens], small: int) -> bool:
        """Whether a large batch gives the bits of small ones, tried at its two ends once for each length."""
        length = len(batch[0])
        if length not in self._alike:
            vectors = self._embed(batch)
            ends = (slice(0, small), slice(len(batch) - small, len(batch)))
            self._alike[length] = all(np.array_equal(vectors[end], self._embed(batch[end])) for end in ends)
        return self._alike[length]


def same_length(lengths: Sequence[int]) -> list[NDArray[np.intp]]:
    """Places of the items of each length, in their order."""
    order = np.argsort(lengths, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(np.asarray(lengths)[order])) + 1)
