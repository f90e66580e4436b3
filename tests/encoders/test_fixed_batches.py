"""Batches of two shapes a length, of which the larger one has to prove itself."""

from __future__ import annotations

import numpy as np
import pytest

from sgpu.encoders.sentence import FixedBatches, Tokens, Vectors, same_length


class Kernels:
    """Rounds differently in batches of ``odd`` sequences; remembers the shapes."""

    def __init__(self, odd: int | None = None) -> None:
        self.odd = odd
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, sequences: list[Tokens]) -> Vectors:
        assert len({len(ids) for ids in sequences}) == 1
        self.shapes.append((len(sequences), len(sequences[0])))
        off = 1e-3 if len(sequences) == self.odd else 0.0
        return np.array([[sum(ids) + off, len(ids)] for ids in sequences], dtype=np.float32) / 7


def sequences(count: int, length: int) -> list[Tokens]:
    return [tuple(range(i, i + length)) for i in range(count)]


def test_every_batch_has_one_of_two_shapes() -> None:
    kernels = Kernels()
    FixedBatches(kernels, small=4, token_budget=40).encode(
        [*sequences(23, 3), *sequences(2, 9), *sequences(1, 50)]
    )
    assert set(kernels.shapes) == {(4, 3), (12, 3), (4, 9), (1, 50)}


def test_rows_come_in_the_order_of_the_sequences() -> None:
    mixed = [sequences(60, 1 + i % 5)[i] for i in range(60)]
    rows = FixedBatches(Kernels(), small=4, token_budget=40).encode(mixed)
    assert rows.tobytes() == np.concatenate([Kernels()([ids]) for ids in mixed]).tobytes()


def test_the_large_shape_is_tried_once_a_length() -> None:
    kernels = Kernels()
    batches = FixedBatches(kernels, small=4, token_budget=40)
    batches.encode(sequences(24, 3))
    assert kernels.shapes == [(12, 3), (4, 3), (4, 3), (12, 3), (12, 3)]
    batches.encode(sequences(12, 3))
    assert kernels.shapes[5:] == [(12, 3)]


def test_a_large_shape_that_rounds_differently_is_not_used() -> None:
    kernels = Kernels(odd=12)
    rows = FixedBatches(kernels, small=4, token_budget=40).encode(sequences(24, 3))
    assert kernels.shapes == [(12, 3), (4, 3), *[(4, 3)] * 6]
    assert rows.tobytes() == Kernels()(sequences(24, 3)).tobytes()


@pytest.mark.parametrize("count", [1, 3, 4, 5, 13])
def test_left_over_sequences_fill_a_small_batch(count: int) -> None:
    kernels = Kernels()
    rows = FixedBatches(kernels, small=4, token_budget=12).encode(sequences(count, 3))
    assert kernels.shapes == [(4, 3)] * -(-count // 4)
    assert rows.tobytes() == Kernels()(sequences(count, 3)).tobytes()


def test_places_are_grouped_by_length_in_order() -> None:
    assert [group.tolist() for group in same_length([3, 7, 3, 5, 7])] == [[0, 2], [3], [1, 4]]
