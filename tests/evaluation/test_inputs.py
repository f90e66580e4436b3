import numpy as np
import pytest

from sgpu.errors import DataError
from sgpu.evaluation.calibration import brier, ece, log_loss
from sgpu.evaluation.ranking import auarc, auarc_20, auroc, retention_curve
from tests.evaluation.resampling import bootstrap

RANKING = [auroc, auarc, auarc_20, retention_curve]
CALIBRATION = [ece, brier, log_loss]


@pytest.mark.parametrize("metric", RANKING + CALIBRATION)
def test_a_missing_score_is_refused_not_ranked(metric):
    with pytest.raises(DataError, match=r"row 1 is NaN \(1 such rows\)"):
        metric(np.array([0.5, np.nan, 0.1]), np.array([1.0, 0.0, 1.0]))


@pytest.mark.parametrize("metric", RANKING + CALIBRATION)
@pytest.mark.parametrize("bad", [np.nan, 0.5, 2.0, -1.0])
def test_a_label_other_than_zero_or_one_is_refused(metric, bad):
    with pytest.raises(DataError, match="row 2 is"):
        metric(np.array([0.5, 0.2, 0.1]), np.array([1.0, 0.0, bad]))


@pytest.mark.parametrize("metric", RANKING + CALIBRATION)
def test_arrays_of_two_lengths_are_refused(metric):
    with pytest.raises(DataError, match=r"2 labels need scores of shape \(2,\), got \(3,\)"):
        metric(np.array([0.5, 0.2, 0.1]), np.array([1.0, 0.0]))


@pytest.mark.parametrize("metric", CALIBRATION)
@pytest.mark.parametrize("bad", [-0.01, 1.01, np.inf])
def test_a_probability_outside_zero_and_one_is_refused(metric, bad):
    with pytest.raises(DataError, match=r"row 0 is .*outside \[0, 1\]"):
        metric(np.array([bad, 0.2]), np.array([1.0, 0.0]))


@pytest.mark.parametrize("metric", [auroc, auarc, auarc_20, *CALIBRATION])
def test_no_rows_is_undefined(metric):
    assert np.isnan(metric(np.empty(0), np.empty(0)))


def test_bootstrap_refuses_missing_rows():
    with pytest.raises(DataError, match="row 0 is NaN"):
        bootstrap({"a": np.array([np.nan, 1.0])}, np.array([0.0, 1.0]))
