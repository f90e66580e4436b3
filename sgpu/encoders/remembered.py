"""An encoder that keeps the vectors of one piece of work, for two readers of the same texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, WrappedEncoder


class RememberingEncoder(WrappedEncoder):
    """An `Encoder` that encodes a text once until it is told to `forget`, or holds ``most`` texts or more.

    What is asked for first is encoded as if it were asked for alone, so a second reader changes no bit of
    the first one's vectors.
    """

    def __init__(self, encoder: Encoder, most: int | None = None) -> None:
        super().__init__(encoder)
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Drop all vectors."""
        self._places: dict[str, int] = {}
        self._vectors = np.empty((0, self._encoder.dim), dtype=np.float32)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), D) rows of unit norm; only texts that were not asked for before are encoded."""
        if self._most is not None and len(self._places) >= self._most:
            self.forget()
        new = [text for text in dict.fromkeys(texts) if text not in self._places]
        if new:
            start = len(self._places)
            self._places |= {text: start + place for place, text in enumerate(new)}
            vectors = self._encoder.encode(new)
            self._vectors = np.concatenate([self._vectors, vectors]) if start else vectors
        return self._vectors[[self._places[text] for text in texts]]
