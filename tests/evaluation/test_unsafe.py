import numpy as np
import pytest

from sgpu.evaluation.bootstrap import intervals, resampled_rows
from sgpu.evaluation.metrics import unsafe_statistic
from sgpu.evaluation.ranking import auroc


def sample(n=300):
    rng = np.random.default_rng(0)
    label = (rng.random(n) < 0.6).astype(float)
    p = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(size=n))))
    return p, label, np.abs(p - 0.5) < 0.1


def run(p, label, unsafe, present=None, n_resamples=30):
    present = np.ones(len(p), dtype=bool) if present is None else present
    statistic = unsafe_statistic(p, label, unsafe, present)
    return intervals({"m": [statistic]}, len(p), n_resamples=n_resamples, seed=2)["m"]


def test_splits_accuracy_and_ranking_at_the_flag():
    p, label, unsafe = sample()
    found = {metric: interval.value for metric, interval in run(p, label, unsafe).items()}
    assert found == pytest.approx(
        {
            "unsafe_share": unsafe.mean(),
            "accuracy_unsafe": label[unsafe].mean(),
            "accuracy_kept": label[~unsafe].mean(),
            "auroc_kept": auroc(p[~unsafe], label[~unsafe]),
        }
    )


def test_dropping_the_undecided_improves_the_ranking_of_a_calibrated_score():
    p, label, unsafe = sample(3000)
    assert run(p, label, unsafe)["auroc_kept"].value > auroc(p, label)


def test_interval_resamples_flags_with_their_rows():
    p, label, unsafe = sample()
    rows = next(resampled_rows(len(p), 30, seed=2))
    looped = [label[r][unsafe[r]].mean() for r in rows]
    assert run(p, label, unsafe)["accuracy_unsafe"][1:3] == pytest.approx(np.quantile(looped, [0.025, 0.975]))


def test_nothing_flagged_leaves_the_flagged_accuracy_undefined():
    p, label, _ = sample()
    found = run(p, label, np.zeros(len(p), dtype=bool))
    assert found["unsafe_share"].value == 0
    assert np.isnan(found["accuracy_unsafe"].value)


def test_rows_that_are_not_present_do_not_count():
    p, label, unsafe = sample()
    present = np.arange(len(p)) < 200
    p[200:], label[200:] = np.nan, np.nan
    assert run(p, label, unsafe, present)["accuracy_kept"].value == label[:200][~unsafe[:200]].mean()
