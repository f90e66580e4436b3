"""Is today like the days before, and like the training data? Sketches, tests, and the verdict on a day."""

from __future__ import annotations

from sgpu.scoring.watch.judge import judge_day
from sgpu.scoring.watch.rows import sketch_of
from sgpu.scoring.watch.sketch import Sketch, folded, merge
from sgpu.scoring.watch.thresholds import Thresholds, read_thresholds
from sgpu.scoring.watch.verdict import Finding, Verdict

__all__ = [
    "Finding",
    "Sketch",
    "Thresholds",
    "Verdict",
    "folded",
    "judge_day",
    "merge",
    "read_thresholds",
    "sketch_of",
]
