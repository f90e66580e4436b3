"""Is today like the days before, and like the training data? Sketches, tests, and the verdict on a day."""

from __future__ import annotations

from sgpu.watch.sketch import Sketch, folded, merge, sketch_of
from sgpu.watch.thresholds import Thresholds, read_thresholds
from sgpu.watch.verdict import Finding, Verdict, judge_day

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
