"""What is put to a test, and what is not."""

from __future__ import annotations

from sgpu.watch.comparisons import MEAN, MEASURES, MMD, POOLED_MEAN, comparisons, history_of
from sgpu.watch.thresholds import Thresholds
from sgpu.watch.two_sample_tests import Samples
from tests.watch.made_scores import sketch


def test_spectra_come_as_samples_that_are_not_compared_yet() -> None:
    today = sketch(300, 1)
    history = history_of(today, [sketch(300, seed) for seed in range(2, 9)], 7)
    made = {one.measure: one for one in comparisons(None, today.total(), history.of(None), Thresholds())}
    assert made.keys() == MEASURES.keys() - {"accepted_errors", MEAN, POOLED_MEAN}
    samples = made[MMD].run
    assert isinstance(samples, Samples) and samples.lengths(1024) == (300, 1024)
