import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from sgpu.errors import DataError, TrainingError, UsageError
from sgpu.probes.saplma import Saplma
from tests.probes.probe_contract import ProbeContract

LAYERS, FEATURES, TELLING = 3, 8, 1


def made(rows, seed):
    """Noise, but for one layer: right where its first two features have one sign."""
    hidden = np.random.default_rng(seed).normal(size=(rows, LAYERS, FEATURES)).astype(np.float16)
    return hidden, (hidden[:, TELLING, 0] * hidden[:, TELLING, 1] > 0).astype(np.float64)


TRAIN, VALIDATION, TEST = made(1000, 0), made(200, 1), made(500, 2)


@pytest.fixture(scope="module")
def fitted():
    return Saplma(seed=3).fit(*TRAIN, *VALIDATION)


@pytest.fixture
def states():
    return TEST[0]


class TestSaplma(ProbeContract):
    key = "epochs"


def test_finds_the_layer_and_wins_where_a_line_cannot(fitted):
    hidden, labels = TEST
    assert fitted.report.layer == TELLING
    flat = LogisticRegression().fit(TRAIN[0].reshape(1000, -1), TRAIN[1])
    assert roc_auc_score(labels, flat.predict_proba(hidden.reshape(500, -1))[:, 1]) < 0.6
    assert roc_auc_score(labels, fitted.predict_proba(hidden)) > 0.95


def test_says_how_well_each_layer_did(fitted):
    aurocs = fitted.report.validation_auroc
    assert len(aurocs) == LAYERS and max(aurocs) == aurocs[TELLING] > 0.9


def test_validation_decides_the_layer_even_where_another_fits_the_training_rows_better():
    hidden, labels = TRAIN[0].copy(), TRAIN[1]
    hidden[:, 0, 0] = labels * 20  # told by layer 0 in the training rows only
    probe = Saplma(epochs=2).fit(hidden, labels, *VALIDATION)
    assert probe.report.layer == TELLING


def test_validation_rows_are_not_trained_on():
    one_layer = TRAIN[0][:200, :1], TRAIN[1][:200]
    validation = VALIDATION[0][:, :1]
    probes = [
        Saplma(epochs=1).fit(*one_layer, validation, labels) for labels in (VALIDATION[1], 1 - VALIDATION[1])
    ]
    test = TEST[0][:, :1]
    np.testing.assert_array_equal(*(probe.predict_proba(test) for probe in probes))


def test_missing_rows_stay_missing(fitted):
    hidden = TEST[0][:4].copy()
    hidden[1, 0, 0], hidden[2] = np.nan, np.inf
    probability = fitted.predict_proba(hidden)
    np.testing.assert_array_equal(np.isnan(probability), [False, True, True, False])
    np.testing.assert_allclose(probability[[0, 3]], fitted.predict_proba(TEST[0][[0, 3]]), rtol=1e-12)


def test_rows_without_state_or_label_are_left_out_and_counted():
    hidden, labels = TRAIN[0][:100].copy(), TRAIN[1][:100].copy()
    hidden[3, 2, 5], labels[7] = np.nan, np.nan
    kept = np.delete(np.arange(100), [3, 7])
    with_gaps = Saplma(epochs=1).fit(hidden, labels, *VALIDATION)
    without = Saplma(epochs=1).fit(hidden[kept], labels[kept], *VALIDATION)
    assert (with_gaps.report.rows, with_gaps.report.rows_left_out) == (98, 2)
    np.testing.assert_array_equal(with_gaps.predict_proba(TEST[0]), without.predict_proba(TEST[0]))


@pytest.mark.parametrize("rows", [0, 5])
def test_validation_rows_of_one_class_leave_the_middle_layer(rows):
    report = Saplma(epochs=1).fit(TRAIN[0][:50], TRAIN[1][:50], VALIDATION[0][:rows], np.ones(rows)).report
    assert report.layer == 1 and report.validation_auroc == (None,) * LAYERS


def test_a_cell_of_eleven_questions_can_be_fitted():
    probe = Saplma().fit(TRAIN[0][:9], TRAIN[1][:9], TRAIN[0][9:11], TRAIN[1][9:11])
    assert np.isfinite(probe.predict_proba(TEST[0])).all()


def test_training_rows_of_one_class_are_refused():
    with pytest.raises(TrainingError, match="both classes"):
        Saplma().fit(TRAIN[0], np.ones(1000), *VALIDATION)


def test_votes_that_are_not_labels_are_refused():
    with pytest.raises(DataError, match=r"0\.5"):
        Saplma().fit(TRAIN[0], np.full(1000, 0.5), *VALIDATION)


def test_states_of_other_layers_are_refused(fitted):
    with pytest.raises(DataError, match="2 layers of 8"):
        fitted.predict_proba(TEST[0][:, :2])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="epochs"):
        Saplma(epochs=0)


def test_equal_fits_are_saved_as_equal_bytes(tmp_path):
    few = TRAIN[0][:40], TRAIN[1][:40]
    for name in ("few", "again"):
        Saplma(epochs=1, seed=3).fit(*few, *VALIDATION).save(tmp_path / name)
    for name in ("saplma.json", "saplma.safetensors"):
        assert (tmp_path / "few" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
