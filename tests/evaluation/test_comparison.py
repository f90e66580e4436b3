"""None"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.evaluation.cell import EvaluationSettings, evaluate_cell
from sgpu.evaluation.comparison import compare_cell, holm
from sgpu.evaluation.delong import delong
from sgpu.evaluation.mapping import fit_mapping
from sgpu.evaluation.ranking import auroc
from tests.evaluation.resampling import paired_bootstrap

FAST = EvaluationSettings(n_resamples=60, record={"encoder": "minilm"})
METRICS = {"auroc", "auarc", "auarc_20", "ece", "brier", "log_loss"}


class Cell:
    """600 rows, a third in each split; three scores and the reference's probability for each."""

    def __init__(self):
        rng = np.random.default_rng(0)
        n = 600
        self.label = (rng.random(n) < 0.6).astype(float)
        self.split = np.array(["train", "validation", "test"])[np.arange(n) % 3]
        self.test, self.validation = self.split == "test", self.split == "validation"
        self.p = 1 / (1 + np.exp(-2 * self.label + 1 - rng.normal(size=n)))
        self.confidence = {
            "good": self.p + 0.02 * rng.normal(size=n),
            "sgpu": self.p,
            "fair": self.label + 2 * rng.normal(size=n),
            "noise": rng.normal(size=n),
        }

    def rows(self, settings=FAST, **arguments):
        found = compare_cell(
            self.confidence, {"sgpu": self.p}, self.label, self.split, settings=settings, **arguments
        )
        return {(row.method, row.metric): row for row in found}


@pytest.fixture
def cell():
    return Cell()


def test_every_other_method_is_compared_in_every_metric(cell):
    assert set(cell.rows()) == {(m, metric) for m in ("good", "fair", "noise") for metric in METRICS}


def test_differences_are_those_of_the_metrics_table(cell):
    table = {
        (row.method, row.metric): row.value
        for row in evaluate_cell(cell.confidence, {"sgpu": cell.p}, cell.label, cell.split, settings=FAST)
    }
    for (method, metric), row in cell.rows().items():
        expected = table[method, metric] - table["sgpu", metric]
        assert row.difference == pytest.approx(expected, abs=1e-12), (method, metric)


def test_auroc_has_delongs_p_and_the_interval_of_the_paired_bootstrap(cell):
    row, label = cell.rows()["fair", "auroc"], cell.label[cell.test]
    one, other = cell.confidence["fair"][cell.test], cell.p[cell.test]
    assert row.test == "delong"
    assert row.p == pytest.approx(delong(one, other, label).p)
    paired = paired_bootstrap(one, other, label, n_resamples=60)["auroc"]
    assert (row.lo, row.hi) == (paired.lo, paired.hi)


def test_other_metrics_have_the_p_of_the_paired_bootstrap(cell):
    row, label = cell.rows()["noise", "brier"], cell.label[cell.test]
    assert row.test == "paired bootstrap"
    mapped = fit_mapping("minmax", cell.confidence["noise"][cell.validation], cell.label[cell.validation])
    one, other = cell.confidence["noise"][cell.test], cell.p[cell.test]
    paired = paired_bootstrap(one, other, label, probability=(mapped(one), other), n_resamples=60)
    assert (row.lo, row.hi, row.p) == paired["brier"][1:4]


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_holm_is_over_the_methods_of_one_metric(cell, metric):
    family = [row for (_, name), row in cell.rows().items() if name == metric]
    np.testing.assert_allclose([row.p_holm for row in family], holm([row.p for row in family]))


def test_a_method_that_says_as_much_is_not_significant_and_noise_is(cell):
    rows = cell.rows()
    assert rows["good", "auroc"].p_holm > 0.05
    assert rows["noise", "auroc"].p_holm < 0.001
    assert rows["noise", "auroc"].hi < 0


def test_rows_that_only_one_method_has_are_left_out_of_their_pair_only(cell):
    tested = np.flatnonzero(cell.test)
    cell.confidence["fair"][tested[:7]] = np.nan
    cell.label[tested[-2:]] = np.nan
    rows = cell.rows()
    assert (rows["fair", "auroc"].n, rows["fair", "auroc"].n_missing) == (191, 9)
    assert (rows["noise", "auroc"].n, rows["noise", "auroc"].n_missing) == (198, 2)
    kept = tested[7:-2]
    reference = auroc(cell.p[kept], cell.label[kept])
    expected = auroc(cell.confidence["fair"][kept], cell.label[kept]) - reference
    assert rows["fair", "auroc"].difference == pytest.approx(expected, abs=1e-12)


def test_rows_that_the_reference_lacks_are_left_out_of_every_pair(cell):
    tested = np.flatnonzero(cell.test)
    cell.p[tested[:5]] = np.nan
    rows = cell.rows()
    assert {row.n for row in rows.values()} == {195}
    kept = tested[5:]
    reference = auroc(cell.p[kept], cell.label[kept])
    expected = auroc(cell.confidence["noise"][kept], cell.label[kept]) - reference
    assert rows["noise", "auroc"].difference == pytest.approx(expected, abs=1e-12)


def test_a_method_that_scored_nothing_is_undefined_and_no_comparison_of_the_family(cell):
    before = cell.rows()["noise", "auroc"]
    cell.confidence["none"] = np.full(600, np.nan)
    rows = cell.rows()
    empty = rows["none", "auroc"]
    assert (empty.difference, empty.lo, empty.hi, empty.p, empty.p_holm, empty.n) == (None,) * 5 + (0,)
    assert "no labelled test row has both methods" in json.loads(empty.settings)["undefined"]
    assert "no validation row" in json.loads(rows["none", "ece"].settings)["undefined"]
    assert rows["noise", "auroc"].p_holm == before.p_holm


def test_one_class_is_undefined_for_auroc_and_says_why(cell):
    cell.label[cell.test] = 1
    rows = cell.rows()
    row = rows["fair", "auroc"]
    assert (row.difference, row.p, row.p_holm) == (None, None, None)
    assert json.loads(row.settings)["undefined"] == "one class: 200 right and 0 wrong rows"
    assert rows["fair", "brier"].difference is not None


def test_eleven_rows_are_compared():
    rng = np.random.default_rng(1)
    label = np.array([1.0] * 8 + [0.0] * 3 + [1, 0, 1, 0])
    split = np.repeat(["test", "validation"], [11, 4])
    confidence = {"sgpu": rng.random(15), "pe": rng.normal(size=15), "ties": np.zeros(15)}
    found = compare_cell(confidence, {"sgpu": confidence["sgpu"]}, label, split)
    assert {row.n for row in found} == {11}
    assert all(row.p is not None and 0 < row.p <= row.p_holm <= 1 for row in found)


def test_the_reference_can_be_another_method(cell):
    swapped, rows = cell.rows(reference="noise"), cell.rows()
    assert swapped["sgpu", "auroc"].difference == -rows["noise", "auroc"].difference
    assert {row.reference for row in swapped.values()} == {"noise"}


def test_a_cell_without_the_reference_has_no_comparisons(cell):
    del cell.confidence["sgpu"]
    assert cell.rows() == {}


def test_settings_say_how_the_interval_was_drawn(cell):
    assert json.loads(cell.rows()["fair", "auarc"].settings) == {
        "encoder": "minilm",
        "level": 0.95,
        "n_resamples": 60,
        "n_resamples_used": 60,
        "seed": 0,
    }


def test_columns_of_another_length_are_named(cell):
    cell.confidence["fair"] = np.zeros(5)
    with pytest.raises(DataError, match=r"confidence of 'fair' has shape \(5,\)"):
        cell.rows()


def by_closed_testing(p):
    """The largest Bonferroni p of all groups of hypotheses that hold the one in question."""
    m = len(p)
    groups = [g for size in range(1, m + 1) for g in itertools.combinations(range(m), size)]
    return [max(min(1.0, len(g) * min(p[j] for j in g)) for g in groups if i in g) for i in range(m)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_agrees_with_testing_every_group_of_hypotheses(m, seed):
    p = np.random.default_rng(seed).random(m) ** 3
    np.testing.assert_allclose(holm(p), by_closed_testing(p), rtol=1e-14)


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.02, 0.02, 0.5], [0.06, 0.06, 0.5]),
        ([0.01, np.nan, 0.02], [0.02, np.nan, 0.02]),
        ([0.9, 0.8, 1.0], [1.0, 1.0, 1.0]),
    ],
    ids=["by hand", "ties", "undefined ones are not counted", "never above one"],
)
def test_adjusted_p_values(p, adjusted):
    np.testing.assert_allclose(holm(p), adjusted)


def test_undefined_comparisons_alone_stay_undefined():
    assert np.isnan(holm([np.nan, np.nan])).all()
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("bad", [[0.5, -0.1], [0.5, 1.1], [[0.5]]])
def test_values_that_are_no_probabilities_are_refused(bad):
    with pytest.raises(DataError, match="p values must be a vector"):
        holm(bad)
