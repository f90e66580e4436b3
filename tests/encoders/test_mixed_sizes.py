"""Spectra of sets of different sizes, from one pass of the encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from sgpu.encoders import mixed_sizes
from sgpu.encoders.features import spectra_of
from sgpu.encoders.mixed_sizes import spectra_by_set_size
from sgpu.encoders.remembered import RememberingEncoder
from sgpu.errors import DataError

SETS = [["a", "b"], ["a", "a", "c"], ["d", "b"], ["a"] * 40, ["e", "f", "a"]]


class RandomEncoder:
    """A random unit vector for every text, the same at each call."""

    name, dtype, dim, fingerprint = "random", "float32", 8, "f00d"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        rows = np.array([np.random.default_rng(ord(text[0])).normal(size=self.dim) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_each_text_is_encoded_once_for_all_sizes() -> None:
    encoder = RandomEncoder()
    spectra_by_set_size(SETS, encoder)
    assert encoder.calls == [["a", "b", "c", "d", "e", "f"]]


def test_spectra_are_those_of_each_size_alone_to_the_last_bit() -> None:
    found = spectra_by_set_size(SETS, RandomEncoder())
    assert {n: sized.rows.tolist() for n, sized in found.items()} == {2: [0, 2], 3: [1, 4], 40: [3]}
    for n, sized in found.items():
        own = spectra_of([SETS[row] for row in sized.rows], RandomEncoder())
        assert own.shape[1] == n
        assert np.array_equal(sized.spectra, own)


def test_small_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = spectra_by_set_size(SETS, RandomEncoder())
    monkeypatch.setattr(mixed_sizes, "VECTORS_AT_A_TIME", 1)
    for n, sized in spectra_by_set_size(SETS, RandomEncoder()).items():
        assert np.array_equal(sized.spectra, whole[n].spectra)


def test_no_sets_give_nothing_and_an_empty_one_is_refused() -> None:
    assert spectra_by_set_size([], RandomEncoder()) == {}
    with pytest.raises(DataError, match="set 1 is empty"):
        spectra_by_set_size([["a"], []], RandomEncoder())


def test_a_second_reader_has_only_new_texts_encoded() -> None:
    encoder = RandomEncoder()
    remembering = RememberingEncoder(encoder)
    first = remembering.encode(["a", "b"])
    second = remembering.encode(["b", "c", "a"])
    assert encoder.calls == [["a", "b"], ["c"]]
    assert np.array_equal(second[[2, 0]], first)
    assert np.array_equal(second, RandomEncoder().encode(["b", "c", "a"]))


def test_what_is_forgotten_is_encoded_again() -> None:
    encoder = RandomEncoder()
    remembering = RememberingEncoder(encoder)
    remembering.encode(["a"])
    remembering.forget()
    remembering.encode(["a"])
    assert encoder.calls == [["a"], ["a"]]


def test_no_more_texts_are_kept_than_asked_for() -> None:
    encoder = RandomEncoder()
    remembering = RememberingEncoder(encoder, most=2)
    remembering.encode(["a", "b"])
    remembering.encode(["a"])  # it held two
    assert encoder.calls == [["a", "b"], ["a"]]
    assert remembering.encode(["a", "b"]).shape == (2, 8)
