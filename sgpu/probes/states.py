"""What probes demand of their arrays, states of Q answers in L layers; which token and layers they read.

The names of two positions were swapped in the published probe code for two years, and SLT was one token
early. So they are defined here once, as an index into prompt + generated tokens: by where the token stands
and not by which step of generation computed its state. Layers are chosen by validation rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgpu.errors import DataError, UsageError
from sgpu.evaluation.ranking import auroc
from sgpu.registry import unknown_name

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


def complete_rows(states: NDArray[Any]) -> Bools:
    """(Q,) whether every value of a row is finite, read layer by layer to save memory."""
    complete = np.ones(len(states), dtype=np.bool_)
    for layer in range(states.shape[1]):
        complete &= np.isfinite(states[:, layer]).all(axis=1)
    return complete


def flat_layers(states: NDArray[Any], rows: Bools, first: int, stop: int) -> Singles:
    """The layers from ``first`` to before ``stop`` of some rows, side by side: (M, layers * D) float32."""
    chosen = states[rows, first:stop]
    return chosen.reshape(len(chosen), chosen.shape[1] * chosen.shape[2]).astype(np.float32)


@dataclass(frozen=True)
class ProbeRows:
    """Rows to fit or to choose by: those of ``states`` (Q, L, D) that are ``complete``.

    Each has a target.
    """

    states: NDArray[Any]
    complete: Bools
    target: Floats  # (M,), of the M known rows

    @classmethod
    def of(cls, hidden: ArrayLike, target: ArrayLike, like: tuple[int, int] | None = None) -> ProbeRows:
        """Leave out rows without a state or a target (NaN). DataError for shapes that do not fit."""
        states = layer_states(hidden, like)
        values = np.asarray(target, dtype=np.float64)
        if values.shape != (len(states),):
            raise DataError(f"targets have shape {values.shape}, the hidden states {len(states)} rows")
        complete = complete_rows(states) & np.isfinite(values)
        return cls(states, complete, values[complete])

    @property
    def shape(self) -> tuple[int, int]:
        """(L, D)."""
        return int(self.states.shape[1]), int(self.states.shape[2])

    @property
    def left_out(self) -> int:
        return len(self.states) - len(self.target)

    def layers(self, first: int, stop: int) -> Singles:
        """(M, layers * D) float32."""
        return flat_layers(self.states, self.complete, first, stop)


Position = Literal["tbg", "slt"]


def token_index(position: Position, prompt_tokens: int, generated_tokens: int) -> int:
    """Index from 0 of the token whose state is read.

    "tbg", the token before generating, is the last token of the prompt. "slt" is the second-last generated
    token: the last one of the answer's text, because the last generated one ends the sequence.
    ``generated_tokens`` counts that end-of-sequence token, as stored responses do. Of an answer that was cut
    off it is the second-last token of the text. With one generated token the two positions are the same.

    Raises UsageError for another position, DataError without prompt or, for "slt", without answer.

    Source: Kossen et al. 2024.
    """
    if position not in get_args(Position):
        raise UsageError(unknown_name("position", position, list(get_args(Position))))
    if prompt_tokens < 1:
        raise DataError(f"the prompt has {prompt_tokens} tokens; at least 1 is needed")
    if position == "tbg":
        return prompt_tokens - 1
    if generated_tokens < 1:
        raise DataError(f"{generated_tokens} tokens were generated; position 'slt' needs at least 1")
    return prompt_tokens + generated_tokens - 2


def validation_auroc(score: Floats, target: Floats) -> float | None:
    """AUROC of (n,) scores for 0/1 targets; None where it is undefined: one class, or no row."""
    if len(np.unique(target)) < 2:
        return None
    area = auroc(score, target)
    return None if math.isnan(area) else area


def best_layers(aurocs: Sequence[float | None], at_least: int) -> tuple[int, int]:
    """(first, stop) of the ``at_least`` or more consecutive layers with the highest mean AUROC.

    The shortest, then the earliest of equals. All layers if there are fewer, the middle ones where the
    validation rows cannot tell (None).

    Source: Kossen et al. 2024 choose SEP's layers so, but on test rows.
    """
    n, length = len(aurocs), min(at_least, len(aurocs))
    defined = [area for area in aurocs if area is not None]
    if len(defined) < n:
        first = (n - length) // 2
        return first, first + length
    ranges = [(first, first + size) for size in range(length, n + 1) for first in range(n - size + 1)]
    return max(ranges, key=lambda span: math.fsum(defined[slice(*span)]) / (span[1] - span[0]))
