"""A scorer without models: the spectrum of a set is how often each of its texts occurs.

That is what an encoder gives that maps different texts to orthogonal vectors. The probability is the share of
the most frequent text. Texts that start with "POISON" end the process, "RAISE" raises. Where the folder of
models holds a file "slow", each call takes that many seconds, and leaves the process's number in "pids".
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgpu.logs.records import Reason
from sgpu.scoring.models.scorer import Problem, Scored
from sgpu.scoring.plan import DayPlan


class CountingScorer:
    """``calls`` holds the sets of each call."""

    encoder_name, encoder_sha256 = "counting", "c0ffee"

    def __init__(self, shadow: bool = False, models: Path | None = None) -> None:
        self.calls: list[list[Sequence[str]]] = []
        self._shadow, self._models = shadow, models

    def score(self, sets: Sequence[Sequence[str]]) -> Scored:
        self.calls.append(list(sets))
        if self._models is not None and (self._models / "slow").is_file():
            with (self._models / "pids").open("a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(float((self._models / "slow").read_text()))
        for text in (text for texts in sets for text in texts):
            if text.startswith("POISON"):
                os._exit(9)
            if text.startswith("RAISE"):
                raise ValueError(text)
        spectra = [_spectrum(texts) for texts in sets]
        share = np.array([spectrum[0] / len(spectrum) for spectrum in spectra])
        problems = [Problem(Reason.NO_HEAD, "7 answers") if len(texts) == 7 else None for texts in sets]
        none = np.full(len(sets), np.nan)
        return Scored(
            spectra=spectra,
            probability=share,
            std=np.full(len(sets), 0.1),
            unsafe=[abs(p - 0.5) < 0.05 for p in share.tolist()],
            heads=["own"] * len(sets),
            n_used=np.array([len(texts) for texts in sets], dtype=np.int32),
            n_distinct=np.array([len(set(texts)) for texts in sets], dtype=np.int32),
            top_share=share,
            accepted=[None] * len(sets),
            problems=problems,
            shadow_probability=share**2 if self._shadow else none,
            shadow_std=np.full(len(sets), 0.2) if self._shadow else none,
            shadow_unsafe=[False if self._shadow else None] * len(sets),
        )


def _spectrum(texts: Sequence[str]) -> np.ndarray:
    counts = sorted(Counter(texts).values(), reverse=True)
    return np.array([float(n) for n in counts] + [0.0] * (len(texts) - len(counts)))


def open_scorer(plan: DayPlan, models: Path) -> CountingScorer:
    return CountingScorer(plan.models.challenger is not None, models)
