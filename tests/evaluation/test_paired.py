import itertools
import math

import numpy as np
import pytest
import scipy.stats

from sgpu.errors import DataError
from sgpu.evaluation.bootstrap import bootstrap_p, differences, replicates
from sgpu.evaluation.delong import delong
from sgpu.evaluation.metrics import ranking_statistic
from sgpu.evaluation.ranking import auarc, auroc, auroc_of
from tests.evaluation.resampling import bootstrap, paired_bootstrap


def sample(n=200, seed=0):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.6).astype(float)
    shared = rng.normal(size=n)
    one, other = (label + shared + rng.normal(size=n) for _ in range(2))
    return one, other, label


def squash(score):
    return 1 / (1 + np.exp(-score))


def area_difference(one, other, label, n_resamples):
    """The AUROC of `paired_bootstrap` alone, which is faster."""
    metrics = {"auroc": auroc_of}
    statistics = {i: [ranking_statistic(s, label, metrics=metrics)] for i, s in enumerate((one, other))}
    return differences(statistics, [(0, 1)], len(label), n_resamples=n_resamples)[0]["auroc"]


def test_every_metric_has_its_difference():
    one, other, label = sample()
    p, q = squash(one), squash(other)
    found = paired_bootstrap(one, other, label, probability=(p, q), n_resamples=50)
    alone = bootstrap({"a": one, "b": other}, label, probability={"a": p, "b": q}, n_resamples=2)
    assert set(found) == set(alone["a"])
    for metric, difference in found.items():
        expected = alone["a"][metric].value - alone["b"][metric].value
        assert difference.value == pytest.approx(expected, abs=1e-12), metric
        assert difference.lo <= difference.hi


def test_interval_agrees_with_scipy():
    one, other, label = sample(120)
    ours = paired_bootstrap(one, other, label, n_resamples=4000)["auroc"]
    theirs = scipy.stats.bootstrap(
        (one, other, label),
        lambda a, b, y: auroc(a, y) - auroc(b, y),
        n_resamples=1000,
        paired=True,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert (ours.lo, ours.hi) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_agrees_with_all_resamples_of_five_rows():
    one, other = np.array([5.0, 4, 3, 2, 1]), np.array([4.0, 5, 1, 3, 2])
    label = np.array([1.0, 1, 0, 1, 0])
    every: list[float] = []
    for rows in map(list, itertools.combinations_with_replacement(range(5), 5)):
        orders = math.factorial(5) // math.prod(math.factorial(rows.count(i)) for i in range(5))
        every += [auarc(one[rows], label[rows]) - auarc(other[rows], label[rows])] * orders
    assert len(every) == 5**5
    exact = np.round(every, 12)
    found = paired_bootstrap(one, other, label, n_resamples=20_000)["auarc"]
    tail = min((exact <= 0).mean(), (exact >= 0).mean())
    assert found.p == pytest.approx(min(1, 2 * tail), abs=0.02)
    assert (found.lo, found.hi) == pytest.approx(np.quantile(exact, [0.025, 0.975]), abs=0.02)


def test_pairing_is_narrower_than_two_intervals():
    one, _, label = sample()
    other = one + 0.05 * np.random.default_rng(1).normal(size=len(label))
    found = paired_bootstrap(one, other, label, n_resamples=300)["auroc"]
    single = bootstrap({"a": one}, label, n_resamples=300)["a"]["auroc"]
    assert found.hi - found.lo < 0.2 * (single.hi - single.lo)


def test_p_and_delong_agree_on_many_rows():
    for seed in range(5):
        one, other, label = sample(1000, seed)
        found = area_difference(one, other, label, n_resamples=2000)
        reference = delong(one, other, label)
        assert found.p == pytest.approx(reference.p, abs=0.05)
        assert (found.lo, found.hi) == pytest.approx((reference.lo, reference.hi), abs=0.004)


def test_p_rejects_one_in_twenty_where_the_methods_are_equally_good():
    p = [area_difference(*sample(100, seed), n_resamples=200).p for seed in range(300)]
    # Binomial(300, 0.05) lies in [6, 25] with probability 0.997; the bootstrap is a little off at 100 rows.
    assert 5 <= np.count_nonzero(np.array(p) < 0.05) <= 28


def test_methods_that_rank_alike_do_not_differ():
    one, _, label = sample()
    found = paired_bootstrap(one, 2 * one + 1, label, n_resamples=50)
    assert all(d[:4] == (0.0, 0.0, 0.0, 1.0) for d in found.values())


def test_one_class_is_undefined_for_auroc_only():
    one, other, _ = sample(20)
    found = paired_bootstrap(one, other, np.ones(20), n_resamples=50)
    assert np.isnan(found["auroc"][:4]).all()
    assert found["auroc"].n_resamples_used == 0
    assert found["auarc"][:4] == (0.0, 0.0, 0.0, 1.0)


def test_resamples_of_one_class_are_left_out_and_counted():
    label = np.array([1.0, 0, 0, 0])
    found = paired_bootstrap(np.array([4.0, 3, 2, 1]), np.array([1.0, 2, 3, 4]), label)["auroc"]
    assert found.n_resamples_used == pytest.approx(2000 * (1 - 0.75**4 - 0.25**4), abs=100)
    assert found.value == found.lo == found.hi == 1.0
    assert found.p == pytest.approx(2 / (found.n_resamples_used + 1))


def test_a_missing_score_is_refused():
    one, other, label = sample(20)
    other[4] = np.nan
    with pytest.raises(DataError, match="row 4 is NaN"):
        paired_bootstrap(one, other, label)


@pytest.mark.parametrize(
    ("replicate", "p"),
    [
        ([1.0] * 99, 2 / 100),
        ([-1.0] * 99, 2 / 100),
        ([1.0] * 90 + [-1.0] * 9, 20 / 100),
        ([0.0] * 99, 1.0),
        ([1.0, np.nan, 1.0, 1.0], 2 / 4),
    ],
)
def test_p_is_twice_the_smaller_side(replicate, p):
    assert bootstrap_p(np.array(replicate)) == pytest.approx(p)


def test_p_of_nothing_is_undefined():
    assert np.isnan(bootstrap_p(np.full(3, np.nan)))


def test_p_is_below_five_percent_where_the_interval_leaves_zero_out():
    # The two can part only where a bound falls on the resample next to 0.
    rng = np.random.default_rng(0)
    agree = 0
    for _ in range(300):
        drawn = rng.normal(rng.normal() * 2, 1, 999)
        lo, hi = np.quantile(drawn, [0.025, 0.975])
        agree += (bootstrap_p(drawn) < 0.05) == (lo > 0 or hi < 0)
    assert agree >= 298


def test_one_reference_serves_many_pairs():
    one, other, label = sample()
    statistics = {name: [ranking_statistic(s, label)] for name, s in (("a", one), ("b", other), ("c", -one))}
    found = differences(statistics, [("a", "c"), ("b", "c")], len(label), n_resamples=40, seed=3)
    drawn = replicates(statistics, len(label), n_resamples=40, seed=3)
    for name, by_metric in zip(("a", "b"), found, strict=True):
        expected = np.quantile(drawn[name]["auroc"] - drawn["c"]["auroc"], [0.025, 0.975])
        assert by_metric["auroc"][1:3] == pytest.approx(expected, abs=1e-11)
