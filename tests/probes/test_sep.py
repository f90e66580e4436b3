import itertools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeRegressor

from sgpu.errors import DataError, TrainingError, UsageError
from sgpu.probes.sep import Sep, best_split
from tests.probes.probe_contract import ProbeContract

LAYERS, FEATURES, TELLING = 9, 6, range(3, 8)
LEVELS = np.array([0.0, 0.2, 1.4, 1.9])  # nats; two are low, two high


def made(rows, seed):
    """Noise, but for layers 3 to 7, which lean to one side the more the higher the entropy."""
    rng = np.random.default_rng(seed)
    entropies = rng.choice(LEVELS, size=rows)
    hidden = rng.normal(size=(rows, LAYERS, FEATURES))
    hidden[:, TELLING, 0] += 1.2 * (entropies > 1)[:, None]
    return hidden.astype(np.float16), entropies


TRAIN, VALIDATION, TEST = made(400, 0), made(150, 1), made(300, 2)


@pytest.fixture(scope="module")
def fitted():
    return Sep().fit(*TRAIN, *VALIDATION)


@pytest.fixture
def states():
    return TEST[0]


class TestSep(ProbeContract):
    key = "split_from"


def test_finds_the_split_and_the_layers(fitted):
    assert 0.2 <= fitted.report.split < 1.4
    assert (fitted.report.first_layer, fitted.report.stop_layer) == (3, 8)
    assert fitted.report.split_from == "validation"


def test_tells_low_from_high_entropy_better_than_any_single_layer(fitted):
    low = TEST[1] < 1
    singles = [
        LogisticRegression().fit(TRAIN[0][:, i], TRAIN[1] < 1).predict_proba(TEST[0][:, i])[:, 1]
        for i in range(LAYERS)
    ]
    best_single = max(roc_auc_score(low, single) for single in singles)
    assert roc_auc_score(low, fitted.predict_proba(TEST[0])) > max(0.88, best_single + 0.05)


def test_is_the_logistic_regression_of_scikit_learn_turned_to_low_entropy(fitted):
    flat = TRAIN[0][:, 3:8].reshape(400, -1).astype(np.float32)
    reference = LogisticRegression().fit(flat, TRAIN[1] > fitted.report.split)
    expected = reference.predict_proba(TEST[0][:, 3:8].reshape(300, -1).astype(np.float64))[:, 0]
    np.testing.assert_allclose(fitted.predict_proba(TEST[0]), expected, rtol=1e-5)


def test_says_how_well_each_layer_did(fitted):
    for layer, area in enumerate(fitted.report.validation_auroc):
        model = LogisticRegression().fit(TRAIN[0][:, layer].astype(np.float32), TRAIN[1] > 1)
        score = model.decision_function(VALIDATION[0][:, layer].astype(np.float64))
        assert area == pytest.approx(roc_auc_score(VALIDATION[1] > 1, score), abs=1e-3)


def test_validation_decides_the_layers_even_where_others_fit_the_training_rows_better():
    hidden, entropies = TRAIN[0].copy(), TRAIN[1]
    hidden[:, 0:2, 0] = 5 * (entropies > 1)[:, None]  # told by the first layers in the training rows only
    report = Sep().fit(hidden, entropies, *VALIDATION).report
    assert (report.first_layer, report.stop_layer) == (3, 8)


def test_validation_decides_the_split():
    low_split = np.where(VALIDATION[1] > 0, 1.4, 0.0)
    report = Sep().fit(*TRAIN, VALIDATION[0], low_split).report
    assert 0 < report.split < 0.2


def test_validation_rows_are_not_trained_on():
    training, validation = (TRAIN[0][:, :1], TRAIN[1]), VALIDATION[0][:, :1]
    probes = [Sep().fit(*training, rows, VALIDATION[1]) for rows in (validation, -validation)]
    np.testing.assert_array_equal(*(probe.predict_proba(TEST[0][:, :1]) for probe in probes))


def test_missing_rows_stay_missing(fitted):
    hidden = TEST[0][:3].copy()
    hidden[1, 8, 0] = np.nan
    np.testing.assert_array_equal(np.isnan(fitted.predict_proba(hidden)), [False, True, False])


def test_rows_without_state_or_entropy_are_left_out_and_counted():
    hidden, entropies = TRAIN[0].copy(), TRAIN[1].copy()
    hidden[3, 2, 5], entropies[7] = np.nan, np.nan
    kept = np.delete(np.arange(400), [3, 7])
    with_gaps = Sep().fit(hidden, entropies, *VALIDATION)
    without = Sep().fit(hidden[kept], entropies[kept], *VALIDATION)
    assert (with_gaps.report.rows, with_gaps.report.rows_left_out) == (398, 2)
    np.testing.assert_array_equal(with_gaps.predict_proba(TEST[0]), without.predict_proba(TEST[0]))


@pytest.mark.parametrize("rows", [0, 20])
def test_validation_rows_of_one_entropy_leave_the_split_of_training_and_the_middle_layers(rows):
    report = Sep().fit(*TRAIN, VALIDATION[0][:rows], np.zeros(rows)).report
    assert report.split_from == "training" and 0.2 <= report.split < 1.4
    assert (report.first_layer, report.stop_layer) == (2, 7)
    assert report.validation_auroc == (None,) * LAYERS


def test_a_split_that_leaves_the_training_rows_in_one_group_is_not_taken():
    report = Sep().fit(TRAIN[0], np.where(TRAIN[1] > 1, 0.3, 0.0), VALIDATION[0], VALIDATION[1] + 1).report
    assert report.split_from == "training" and 0 < report.split < 0.3


def test_equal_entropies_are_refused():
    with pytest.raises(TrainingError, match="400 training entropies"):
        Sep().fit(TRAIN[0], np.ones(400), *VALIDATION)


def test_stopping_early_is_said_and_not_warned_of(recwarn):
    assert not Sep(max_iter=2).fit(*TRAIN, *VALIDATION).report.converged
    assert len(recwarn) == 0


def test_arrays_that_do_not_fit_are_refused(fitted):
    with pytest.raises(DataError, match="9 layers of 5"):
        fitted.predict_proba(TEST[0][:, :, :5])
    with pytest.raises(DataError, match=r"\(399,\)"):
        Sep().fit(TRAIN[0], TRAIN[1][:399], *VALIDATION)
    with pytest.raises(DataError, match="fitted to 9"):
        Sep().fit(*TRAIN, VALIDATION[0][:, :4], VALIDATION[1])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="slt"):
        Sep(position="last")
    with pytest.raises(UsageError, match="at_least"):
        Sep(at_least=0)


@pytest.mark.parametrize("seed", range(5))
def test_split_is_that_of_a_regression_tree_of_depth_one(seed):
    rng = np.random.default_rng(seed)
    entropies = np.concatenate([rng.uniform(0, 0.8, size=40), rng.uniform(1.2, 2.5, size=25)])
    tree = DecisionTreeRegressor(max_depth=1).fit(entropies[:, None], entropies)
    np.testing.assert_array_equal(entropies > best_split(entropies), entropies > tree.tree_.threshold[0])


def test_split_has_the_least_deviation_of_the_hundred_candidates():
    entropies = np.random.default_rng(9).choice(np.linspace(0, 3, 13), size=60)

    def deviation(threshold):
        groups = [[e for e in entropies if (e > threshold) == high] for high in (False, True)]
        if not all(groups):
            return np.inf
        return sum((e - sum(group) / len(group)) ** 2 for group in groups for e in group)

    candidates = [1e-10 + i * (entropies.max() - 1e-10) / 99 for i in range(100)]
    least = min(map(deviation, candidates))
    assert deviation(best_split(entropies)) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize("entropies", [[], [0.0], [0.0, 0.0], [1.3, 1.3, 1.3]])
def test_entropies_without_two_groups_have_no_split(entropies):
    assert best_split(np.array(entropies)) is None


def test_no_entropy_is_low_however_the_other_is_chosen():
    for high in itertools.chain([0.1, 1.0], np.log([2, 20])):
        assert 0 < best_split(np.array([0.0, high])) < high
