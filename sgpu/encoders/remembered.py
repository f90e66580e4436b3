"""An encoder that remembers vectors: those of one piece of work, or those that a file keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, distinct

Vectors = NDArray[np.float32]


class VectorMemory(Protocol):
    """Where vectors are kept: `VectorsInMemory`, or `sgpu.scoring.models.embedding_cache.EmbeddingCache`."""

    def get(self, keys: Sequence[bytes], dim: int) -> dict[bytes, Vectors]:
        """The vectors (dim,) that are there, by key."""
        ...

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        """Keep vectors (len(keys), D)."""
        ...


class VectorsInMemory:
    """Vectors of one piece of work, for two readers of the same texts; all go once there are ``most``."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._vectors: dict[bytes, Vectors] = {}

    def get(self, keys: Sequence[bytes], dim: int) -> dict[bytes, Vectors]:
        if self._most is not None and len(self._vectors) >= self._most:
            self.forget()
        return {key: self._vectors[key] for key in keys if key in self._vectors}

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> None:
        self._vectors.update(zip(keys, vectors, strict=True))

    def forget(self) -> None:
        """Drop all vectors."""
        self._vectors.clear()


class RememberingEncoder:
    """An `Encoder` around another that looks its vectors up in a ``memory`` first.

    The key of a vector is the sha256 of the encoder (name, weights, precision, device) and the text. What is
    asked for first is encoded as if it were asked for alone, so a second reader changes no bit of the first
    one's vectors. Those of the second are the encoder's to the last bit only if they depend on their text
    alone (``fixed_batches`` of `sgpu.encoders.load_encoder`): what is found changes what is encoded together.
    """

    def __init__(self, encoder: Encoder, memory: VectorMemory) -> None:
        self._encoder, self._memory = encoder, memory
        self.name, self.dtype, self.dim = encoder.name, encoder.dtype, encoder.dim

    @property
    def fingerprint(self) -> str:
        return self._encoder.fingerprint

    @cached_property
    def _prefix(self) -> bytes:
        parts = (self.name, self.fingerprint, self.dtype, getattr(self._encoder, "device", ""))
        return "\0".join((*parts, "")).encode()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(len(texts), D) rows of unit norm; only texts that are not in the memory are encoded."""
        different, places = distinct(texts)
        keys = [
            hashlib.sha256(self._prefix + text.encode(errors="surrogatepass")).digest() for text in different
        ]
        vectors = self._memory.get(keys, self.dim)
        missing = [index for index, key in enumerate(keys) if key not in vectors]
        if missing:
            encoded = self._encoder.encode([different[index] for index in missing])
            self._memory.put([keys[index] for index in missing], encoded)
            vectors.update((keys[index], vector) for index, vector in zip(missing, encoded, strict=True))
        return np.array([vectors[key] for key in keys], dtype=np.float32).reshape(-1, self.dim)[places]
