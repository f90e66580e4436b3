"""What probes demand of their arrays: the states of Q answers in L layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]


def layer_states(hidden: ArrayLike, like: tuple[int, int] | None = None) -> NDArray[Any]:
    """(Q, L, D) states of any floating type, not copied; DataError for another shape.

    ``like`` is the (L, D) that the probe was fitted to.
    """
    states = np.asarray(hidden)
    if states.ndim != 3 or 0 in states.shape[1:] or not np.issubdtype(states.dtype, np.floating):
        raise DataError(
            f"hidden states have shape {states.shape} and type {states.dtype}; "
            "floats (Q, L, D) with L, D >= 1 are needed"
        )
    if like is not None and states.shape[1:] != like:
        raise DataError(
            f"hidden states have {states.shape[1]} layers of {states.shape[2]} features, the probe was "
            f"fitted to {like[0]} of {like[1]}; read the same layers of the same model"
        )
    return states


def known_rows(states: NDArray[Any]) -> Bools:
    """(Q,) whether every value of a row is finite, read layer by layer to save memory."""
    known = np.ones(len(states), dtype=np.bool_)
    for layer in range(states.shape[1]):
        known &= np.isfinite(states[:, layer]).all(axis=1)
    return known


def flat_layers(states: NDArray[Any], rows: Bools, first: int, stop: int) -> Singles:
    """The layers from ``first`` to before ``stop`` of some rows, side by side: (M, layers * D) float32."""
    chosen = states[rows, first:stop]
    return chosen.reshape(len(chosen), chosen.shape[1] * chosen.shape[2]).astype(np.float32)


@dataclass(frozen=True)
class Rows:
    """Rows to fit or to choose by: those of ``states`` (Q, L, D) that are ``known``, with a target each."""

    states: NDArray[Any]
    known: Bools
    target: Floats  # (M,), of the M known rows

    @classmethod
    def of(cls, hidden: ArrayLike, target: ArrayLike, like: tuple[int, int] | None = None) -> Rows:
        """Leave out rows without a state or a target (NaN). DataError for shapes that do not fit."""
        states = layer_states(hidden, like)
        values = np.asarray(target, dtype=np.float64)
        if values.shape != (len(states),):
            raise DataError(f"targets have shape {values.shape}, the hidden states {len(states)} rows")
        known = known_rows(states) & np.isfinite(values)
        return cls(states, known, values[known])

    @property
    def shape(self) -> tuple[int, int]:
        """(L, D)."""
        return int(self.states.shape[1]), int(self.states.shape[2])

    @property
    def left_out(self) -> int:
        return len(self.states) - len(self.target)

    def layers(self, first: int, stop: int) -> Singles:
        """(M, layers * D) float32."""
        return flat_layers(self.states, self.known, first, stop)
