"""Spectra of response sets of different sizes, every distinct text encoded once for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpu.encoders.base import Encoder, distinct
from sgpu.errors import DataError
from sgpu.spectrum import spectrum

# Vectors gathered at a time: 20,480 x 384 float32 is 31 MB.
VECTORS_AT_A_TIME = 20_480


class SizedSpectra(NamedTuple):
    """``spectra`` (R, n) of the sets at the places ``rows`` (R,), ascending."""

    rows: NDArray[np.intp]
    spectra: NDArray[np.float64]


def spectra_by_set_size(sets: Sequence[Sequence[str]], encoder: Encoder) -> dict[int, SizedSpectra]:
    """The spectra of Q sets of texts, by the number of texts n, ascending.

    Sets are read in the order given, so the same sets make the same batches for the encoder, and the same
    numbers to the last bit. Texts longer than the encoder reads are cut by its tokenizer. Raises DataError
    for an empty set.
    """
    sizes = np.array([len(texts) for texts in sets], dtype=np.intp)
    if (sizes == 0).any():
        raise DataError(f"response set {int((sizes == 0).argmax())} is empty; leave it out")
    if not len(sets):
        return {}
    texts, places = distinct(text for own in sets for text in own)
    vectors = encoder.encode(texts)
    starts = np.cumsum(sizes) - sizes
    made = {}
    for n in np.unique(sizes):
        rows = np.flatnonzero(sizes == n)
        read = places[starts[rows][:, None] + np.arange(n)]
        made[int(n)] = SizedSpectra(
            rows, np.concatenate([spectrum(vectors[block]) for block in _blocks(read)])
        )
    return made


def _blocks(places: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Rows of (R, n), so many at a time that their vectors stay few."""
    step = max(1, VECTORS_AT_A_TIME // places.shape[1])
    for start in range(0, len(places), step):
        yield places[start : start + step]
