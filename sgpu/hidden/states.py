"""What the second pass gives for one question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class AnswerStates:
    """States of S layers for the N answers to one prompt; NaN for an answer without text.

    ``last`` is at the last token of the answer. ``slt`` and ``tbg`` are the positions of semantic entropy
    probes (Kossen et al. 2024): the second-last generated token, and the last token of the prompt.
    """

    last: Halves  # (S, N, D)
    slt: Halves  # (S, N, D)
    tbg: Halves  # (S, D)

    @property
    def n_missing(self) -> int:
        """Answers without a state."""
        return int(np.isnan(self.last[0, :, 0]).sum())
