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

import pyarrow as pa

from sgpu.logs.records import Reason
from sgpu.scoring.plan import DayPlan
from sgpu.scoring.tables import SAID


class CountingScorer:
    """``calls`` holds the sets of each call."""

    def __init__(self, shadow: bool = False, models: Path | None = None) -> None:
        self.calls: list[list[Sequence[str]]] = []
        self._shadow, self._models = shadow, models

    def score(self, sets: Sequence[Sequence[str]], questions: Sequence[str | None]) -> pa.Table:
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
        return pa.Table.from_pylist([self._said(texts) for texts in sets], schema=SAID)

    def _said(self, texts: Sequence[str]) -> dict[str, object]:
        if len(texts) == 7:
            return {"refusal": str(Reason.NO_HEAD), "why": "7 answers"}
        spectrum = _spectrum(texts)
        share = spectrum[0] / len(spectrum)
        shadow = {"shadow_probability": share**2, "shadow_std": 0.2, "shadow_unsafe": False}
        return {
            "probability": share,
            "std": 0.1,
            "unsafe": abs(share - 0.5) < 0.05,
            "head": "own",
            "n_used": len(texts),
            "n_distinct": len(set(texts)),
            "spectrum": spectrum,
            "top_eigenvalue_share": share,
            "encoder": "counting",
            "encoder_sha256": "c0ffee",
            **(shadow if self._shadow else {}),
        }


def _spectrum(texts: Sequence[str]) -> list[float]:
    counts = sorted(Counter(texts).values(), reverse=True)
    return [float(n) for n in counts] + [0.0] * (len(texts) - len(counts))


def open_scorer(plan: DayPlan, models: Path) -> CountingScorer:
    return CountingScorer(plan.models.challenger is not None, models)
