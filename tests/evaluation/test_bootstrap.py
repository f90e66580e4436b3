import itertools

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from sgpu.errors import UsageError
from sgpu.evaluation.bootstrap import (
    as_counts,
    evaluate,
    intervals,
    percentile_interval,
    replicates,
    resampled_rows,
)
from sgpu.evaluation.calibration import ece
from sgpu.evaluation.metrics import probability_statistic, ranking_statistic
from sgpu.evaluation.ranking import auarc, auarc_20, selective_accuracy
from tests.evaluation.resampling import bootstrap

REFERENCES = {
    "auroc": lambda c, p, y: sklearn.metrics.roc_auc_score(y, c),
    "auarc": lambda c, p, y: auarc(c, y),
    "auarc_20": lambda c, p, y: auarc_20(c, y),
    "accuracy": lambda c, p, y: y.mean(),
    "selective_accuracy_50": lambda c, p, y: selective_accuracy(c, y, 0.5),
    "selective_accuracy_70": lambda c, p, y: selective_accuracy(c, y, 0.7),
    "selective_accuracy_80": lambda c, p, y: selective_accuracy(c, y, 0.8),
    "selective_accuracy_90": lambda c, p, y: selective_accuracy(c, y, 0.9),
    "ece": lambda c, p, y: ece(p, y, 15),
    "ece_10": lambda c, p, y: ece(p, y, 10),
    "ece_20": lambda c, p, y: ece(p, y, 20),
    "ece_mass": lambda c, p, y: ece(p, y, 10, "mass"),
    "ece_mass_15": lambda c, p, y: ece(p, y, 15, "mass"),
    "ece_mass_20": lambda c, p, y: ece(p, y, 20, "mass"),
    "brier": lambda c, p, y: sklearn.metrics.brier_score_loss(y, p),
    "log_loss": lambda c, p, y: sklearn.metrics.log_loss(y, p, labels=[0, 1]),
}


def sample(n=150, decimals=12, seed=0):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.6).astype(float)
    confidence = np.round(label + rng.normal(size=n), decimals)
    return confidence, np.round(1 / (1 + np.exp(-confidence)), decimals), label


@pytest.mark.parametrize("decimals", [1, 12], ids=["tied", "untied"])
@pytest.mark.parametrize("metric", REFERENCES)
def test_equals_a_loop_over_the_metric_on_the_same_rows(metric, decimals):
    confidence, p, label = sample(decimals=decimals)
    statistics = {"m": [ranking_statistic(confidence, label), probability_statistic(p, label)]}
    drawn = replicates(statistics, len(label), n_resamples=60, seed=5)["m"][metric]
    rows = np.concatenate(list(resampled_rows(len(label), 60, seed=5)))
    looped = [REFERENCES[metric](confidence[r], p[r], label[r]) for r in rows]
    np.testing.assert_allclose(drawn, looped, rtol=0, atol=1e-12)


@pytest.mark.parametrize("confidence", [[3.0, 1, 2, 0], [1.0, 1, 1, 1], [2.0, 1, 1, 0]])
def test_holds_for_every_resample_of_four_rows(confidence):
    score, label = np.array(confidence), np.array([1.0, 0, 1, 0])
    p = score / 3
    # Up to their order, which no metric sees.
    rows = np.array(list(itertools.combinations_with_replacement(range(4), 4)))
    parts = {"m": [ranking_statistic(score, label), probability_statistic(p, label)]}
    found = evaluate(parts, as_counts(rows, 4))["m"]
    assert set(found) == set(REFERENCES)
    mixed = np.array([0 < label[r].sum() < 4 for r in rows])
    assert np.isnan(found["auroc"][~mixed]).all()
    for metric, values in found.items():
        defined = mixed if metric == "auroc" else np.ones(len(rows), dtype=bool)
        looped = [REFERENCES[metric](score[r], p[r], label[r]) for r in rows[defined]]
        np.testing.assert_allclose(values[defined], looped, rtol=0, atol=1e-12, err_msg=metric)


def test_rows_that_a_method_lacks_are_left_out_of_its_resamples_only():
    confidence, p, label = sample()
    present = np.random.default_rng(1).random(len(label)) < 0.7
    confidence[~present], p[~present] = np.nan, np.nan
    parts = [ranking_statistic(confidence, label, present), probability_statistic(p, label, present)]
    drawn = replicates({"m": parts}, len(label), n_resamples=20, seed=5)["m"]
    rows = next(resampled_rows(len(label), 20, seed=5))
    for metric, reference in REFERENCES.items():
        looped = [reference(confidence[r], p[r], label[r]) for r in (row[present[row]] for row in rows)]
        np.testing.assert_allclose(drawn[metric], looped, rtol=0, atol=1e-12, err_msg=metric)


def test_values_are_those_of_the_plain_functions():
    confidence, p, label = sample()
    found = bootstrap({"m": confidence}, label, probability={"m": p}, n_resamples=10)["m"]
    assert set(found) == set(REFERENCES)
    for metric, interval in found.items():
        assert interval.value == pytest.approx(REFERENCES[metric](confidence, p, label), abs=1e-13), metric


def test_interval_of_a_mean_agrees_with_scipy():
    _, _, label = sample(n=400)
    ours = bootstrap({"m": np.zeros(400)}, label, n_resamples=4000)["m"]["accuracy"]
    theirs = scipy.stats.bootstrap(
        (label,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert (ours.lo, ours.hi) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_about_95_of_100_intervals_cover_the_truth():
    rng = np.random.default_rng(0)
    truth = scipy.stats.norm.cdf(1 / np.sqrt(2))  # unit shift between two unit normals
    covered = 0
    for seed in range(200):
        label = np.repeat([0.0, 1.0], 100)
        interval = bootstrap({"m": label + rng.normal(size=200)}, label, n_resamples=300, seed=seed)["m"]
        covered += interval["auroc"].lo <= truth <= interval["auroc"].hi
    assert 180 <= covered <= 198


def test_same_seed_same_interval_and_another_seed_another():
    confidence, _, label = sample()
    first, again, other = (bootstrap({"m": confidence}, label, n_resamples=50, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first["m"]["auroc"].lo != other["m"]["auroc"].lo


def test_a_method_is_resampled_alike_whatever_stands_beside_it():
    confidence, _, label = sample()
    alone = bootstrap({"b": confidence}, label, n_resamples=50)
    beside = bootstrap({"a": -confidence, "b": confidence}, label, n_resamples=50)
    assert alone["b"] == beside["b"]


def test_differences_of_replicates_are_paired():
    confidence, _, label = sample()
    noisy = confidence + np.random.default_rng(1).normal(size=len(label)) * 0.05
    statistics = {k: [ranking_statistic(c, label)] for k, c in (("a", confidence), ("b", noisy))}
    drawn = replicates(statistics, len(label), n_resamples=500)
    difference = drawn["a"]["auroc"] - drawn["b"]["auroc"]
    assert difference.std() < 0.2 * drawn["a"]["auroc"].std()


def test_resamples_of_one_class_are_skipped_for_auroc_and_counted():
    # One right row in four is drawn by none of the four with probability (3/4)^4 = .316.
    label = np.array([1.0, 0, 0, 0])
    found = bootstrap({"m": np.array([4.0, 3, 2, 1])}, label, n_resamples=2000)["m"]
    expected = 2000 * (1 - 0.75**4 - 0.25**4)
    assert found["auroc"].n_resamples_used == pytest.approx(expected, abs=100)
    assert found["auroc"][:3] == (1.0, 1.0, 1.0)
    assert found["auarc"].n_resamples_used == 2000


def test_one_class_has_neither_value_nor_interval():
    found = bootstrap({"m": np.arange(5.0)}, np.ones(5), n_resamples=20)["m"]["auroc"]
    assert np.isnan(found[:3]).all()
    assert found.n_resamples_used == 0


def test_no_rows_are_undefined_for_every_metric():
    nothing = np.empty(0)
    found = bootstrap({"m": nothing}, nothing, probability={"m": nothing}, n_resamples=3)["m"]
    assert set(found) == set(REFERENCES)
    assert all(np.isnan(interval.value) and interval.n_resamples_used == 0 for interval in found.values())


def test_draws_do_not_depend_on_the_size_of_a_block():
    blocks = list(resampled_rows(50, 40, seed=3, block_counts=300))
    assert len(blocks) > 1
    np.testing.assert_array_equal(np.concatenate(blocks), next(resampled_rows(50, 40, seed=3)))


@pytest.mark.parametrize("n", [1, 2, 10, 999, 1000])
def test_a_block_stays_within_its_bound(n):
    assert all(block.size <= 1000 for block in resampled_rows(n, 3000, seed=0, block_counts=1000))


def test_a_block_holds_at_least_one_resample():
    assert [len(block) for block in resampled_rows(1001, 2, seed=0, block_counts=1000)] == [1, 1]


def test_counts_are_how_often_each_row_was_drawn():
    counts = as_counts(np.array([[0, 2, 2], [1, 1, 1]]), 3)
    np.testing.assert_array_equal(counts, [[1, 0], [0, 3], [2, 0]])


def test_evaluate_merges_the_statistics_of_a_key():
    confidence, p, label = sample()
    parts = [ranking_statistic(confidence, label), probability_statistic(p, label, suffix="_platt")]
    assert {"auroc", "ece_platt"} <= set(evaluate({1: parts}, np.ones((len(label), 2)))[1])


def test_percentiles_are_of_the_defined_replicates():
    replicate = np.concatenate([np.arange(101.0), [np.nan] * 50])
    assert percentile_interval(7.0, replicate, level=0.9) == pytest.approx((7.0, 5.0, 95.0, 101))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_resamples": 0}, "n_resamples is 0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"level": 0}, "level is 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    confidence, _, label = sample()
    with pytest.raises(UsageError, match=message):
        intervals({"m": [ranking_statistic(confidence, label)]}, len(label), **{"n_resamples": 5, **settings})
