from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.preprocessing import StandardScaler

from bench.constructed import constructed_spectra
from sgpu.errors import UsageError
from sgpu.transfer.selection import fit_representation

SPECTRA = constructed_spectra(60, seed=3).spectra


@pytest.mark.parametrize("name", ["raw", "log", "scaled"])
def test_rows_stay_non_negative_and_descending(name: str) -> None:
    shown = fit_representation(name, SPECTRA[:30])(SPECTRA)
    assert (shown >= 0).all() and (np.diff(shown, axis=1) <= 0).all()


def test_raw_rows_are_the_eigenvalues() -> None:
    assert np.allclose(fit_representation("raw", SPECTRA)(SPECTRA), np.maximum(SPECTRA, 0))


def test_log_is_of_the_share_above_the_floor() -> None:
    one = np.zeros((1, 20))
    one[0, 0] = 20.0
    shown = fit_representation("log", SPECTRA)(one)
    # ln(x / N + 0.001) - ln(0.001), at shares 1 and 0.
    assert shown[0, 0] == pytest.approx(np.log(1.001) - np.log(0.001))
    assert (shown[0, 1:] == 0).all()


def test_scaled_rows_lie_as_far_apart_as_standardised_ones() -> None:
    share = np.random.default_rng(0).dirichlet(np.ones(6), 60)
    x = 6 * np.sort(share, axis=1)[:, ::-1]
    standardised = StandardScaler().fit(x[:30]).transform(x[30:])
    assert np.allclose(pdist(fit_representation("scaled", x[:30])(x[30:])), pdist(standardised))


def test_the_scale_is_that_of_the_rows_it_was_fitted_to_and_of_no_others() -> None:
    with_others = fit_representation("scaled", SPECTRA)
    assert not np.allclose(fit_representation("scaled", SPECTRA[:30]).scale, with_others.scale)


def test_an_unknown_name_is_refused_with_what_exists() -> None:
    with pytest.raises(UsageError, match="Did you mean 'scaled'"):
        fit_representation("scale", SPECTRA)
